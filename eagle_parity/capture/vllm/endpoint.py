"""The route by which a capture reaches the workers: ``POST /eagle_parity/{verb}`` on vLLM's API server.

vLLM loads it where ``VLLM_PLUGINS`` names it (0.26.0 and newer, ``plugins/endpoint_plugins``). It asks for proof that
the caller has the spool's token. Without it the methods can be reached by vLLM's own ``/collective_rpc``
(``entrypoints/serve/dev/rpc``), which exists in development mode only and asks for nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from eagle_parity.capture.hook_log import log_exception, logger
from eagle_parity.capture.spool.folder import default_spool, make_spool

PROOF_HEADER = "X-Eagle-Parity-Proof"
ROUTE = "/eagle_parity/{verb}"
PLUGIN = "eagle_parity"
"""What ``VLLM_PLUGINS`` has to name for the route."""
VERBS = ("info", "start", "stop", "files", "read", "discard")
_MAX_BODY_BYTES = 4096


def proof(token: str, verb: str, body: bytes) -> str:
    """What a request to the route carries instead of the token: good for this call alone.

    Args:
        token: of the spool.
        verb: that is called.
        body: of the call.
    """
    return hmac.new(token.encode(), verb.encode() + b"\n" + body, hashlib.sha256).hexdigest()


class CaptureEndpoint:
    """The entry point of ``vllm.endpoint_plugins`` (0.32.0, ``plugins/endpoint_plugins/interface.py``)."""

    name = PLUGIN
    required_tasks = None

    def attach_router(self, app: Any) -> None:
        """Adds the route; vLLM calls this once while it builds its application, and catches nothing."""
        try:
            self._add_route(app)
        except Exception:  # noqa: BLE001  nothing may reach the engine
            log_exception("nothing will be captured, the route could not be added")

    @staticmethod
    def _add_route(app: Any) -> None:
        from fastapi import Request
        from fastapi.responses import JSONResponse

        token, refusal = _token_of_server()

        async def capture(verb: str, request: Request) -> JSONResponse:
            if refusal:
                return JSONResponse({"error": refusal}, status_code=503)
            body = await _bounded_body(request)
            shown = request.headers.get(PROOF_HEADER, "").encode()
            if body is None or not hmac.compare_digest(shown, proof(token, verb, body).encode()):
                return JSONResponse({"error": f"{PROOF_HEADER} is not made with this server's token"}, status_code=403)
            if verb not in VERBS:
                return JSONResponse({"error": f"no verb {verb}"}, status_code=404)
            try:
                arguments = json.loads(body) if body else {}
                engine = request.app.state.engine_client
                answers = await engine.collective_rpc(method=f"eagle_parity_{verb}", kwargs=dict(arguments))
            except Exception as error:  # noqa: BLE001  the server's other routes go on
                return JSONResponse({"error": f"{type(error).__name__}: {error}"}, status_code=500)
            return JSONResponse({"results": answers})

        # The annotations are strings in this module, and FastAPI resolves them among its globals.
        capture.__annotations__ |= {"request": Request, "return": JSONResponse}
        app.post(ROUTE)(capture)

    async def init_state(self, engine_client: object, state: object, args: object) -> None:
        """Nothing to keep: the route finds the engine in the application's state."""


def _token_of_server() -> tuple[str, str]:
    """The spool's token, or why there is none: the server starts without it, and says so to whoever captures."""
    try:
        return make_spool(default_spool()), ""
    except (OSError, ValueError) as error:
        logger.warning("eagle-parity: nothing will be captured, the spool can't be used: %s", error)
        return "", f"the spool can't be used: {error}"


async def _bounded_body(request: Any) -> bytes | None:
    """The body of a call, which names a file at most; None where it is longer than any such."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY_BYTES:
            return None
    return body
