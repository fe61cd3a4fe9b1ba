"""A running SGLang server: what its HTTP interface offers in 0.5.10 to 0.5.23.

- ``/server_info`` (``/get_server_info`` in older releases) has the version, the launch options and with them the hook's
  spool folder (``entrypoints/http_server.py``).
- ``/generate`` takes token ids, a request id (``rid``) that every rank sees, and ``extra_key``, under which alone a
  cached prefix is found (``managers/io_struct.py``).
- ``/tokenize`` knows texts in all of these releases, conversations from 0.5.12 on (``entrypoints/openai/protocol.py``).
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.servers.answers import count_of, ids_of
from eagle_parity.capture.servers.connection import Connection
from eagle_parity.capture.servers.server import Generation
from eagle_parity.capture.servers.spool_token import is_spool_here, no_token, token_of
from eagle_parity.capture.servers.spooled_limit import spooled_limit
from eagle_parity.errors import InputError
from eagle_parity.files import is_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eagle_parity.capture.servers.server import Counters

HOOK_FACTORY = "eagle_parity.capture.sglang:factory"
EXPORTED_HOOK = "eagle_parity_sglang:factory"


class SglangServer:
    """See ``Server``.

    Args:
        url: its address.
        api_key: the server's.
        spool: the hook's folder as it is seen from here; what the server says by default.
        token: of the spool, where its folder isn't within reach.

    Raises:
        InputError: no SGLang server answers, or it has no hook.
    """

    engine = "sglang"

    def __init__(
        self, url: str, *, api_key: str | None = None, spool: str | None = None, token: str | None = None
    ) -> None:
        self._http = Connection(url, api_key=api_key)
        self.url = self._http.url
        self._info = self._server_info()
        self.version = str(self._info.get("version") or "")
        self._stated = spool_of_hook(self._info.get("forward_hooks"))
        self.spool = Path(spool) if spool else self._stated
        found = token_of(self.spool, token)
        if self.spool is None and found is None:
            raise InputError(
                self.url,
                "this server was started without the capture hook",
                remedy="start it with what `eagle-parity capture sglang --launch-flags` prints; if the hook is loaded"
                " as a plugin, pass --spool with the folder that EAGLE_PARITY_SPOOL names",
            )
        if found is None:
            raise no_token(self.url, self.spool)
        self.token = found

    def _server_info(self) -> dict[str, Any]:
        for path in ("/server_info", "/get_server_info"):
            response = self._http.get(path)
            if response.status_code != 404:  # noqa: PLR2004  not found: the other release's path
                info = self._http.json(response, path)
                if isinstance(info, dict) and "tp_size" in info:
                    return info
        raise InputError(self.url, "it has no /server_info", expected="an SGLang server")

    def architectures(self) -> list[str]:
        """As ``/model_info`` has them: what the hook sees inside a wrapper such as Kimi's knows its own alone."""
        for path in ("/model_info", "/get_model_info"):
            response = self._http.get(path)
            if response.status_code == 200:  # noqa: PLR2004  HTTP's OK
                info = self._http.json(response, path)
                found = info.get("architectures") if isinstance(info, dict) else None
                return [str(name) for name in found] if isinstance(found, list) else []
        return []

    def max_tokens(self) -> int | None:
        """The context length less the token that is generated, and no more than its memory holds."""
        bounds = [self._info.get(name) for name in ("max_req_input_len", "context_length", "max_total_num_tokens")]
        known = [bound for bound in bounds if isinstance(bound, int) and bound > 1]
        return min(known) - 1 if known else None

    @contextmanager
    def recording(self, session: str = "", *, generated: bool = False) -> Iterator[None]:  # noqa: ARG002  no need
        """The hook is on for requests of ours and for no others: there is nothing to switch."""
        yield

    def encode_text(self, text: str) -> list[int]:
        """As ``Server`` has it."""
        return self._tokenize({"prompt": text})

    def encode_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """As ``Server`` has it."""
        return self._tokenize({"messages": list(messages)})

    def _tokenize(self, body: dict[str, Any]) -> list[int]:
        answer = self._http.encoded(self._http.post("/tokenize", body))
        tokens = ids_of(answer.get("tokens")) if isinstance(answer, dict) else None
        if tokens is None:
            what = "conversations" if "messages" in body else "texts"
            raise InputError(
                self.url,
                f"its /tokenize gives no token ids for {what}",
                remedy="give prompts as token_ids",
            )
        return list(tokens)

    def generate(
        self, token_ids: Sequence[int], *, request_id: str, salt: str, new_tokens: int, temperature: float = 0.0
    ) -> Generation:
        """As ``Server`` has it."""
        answer = self._http.object(
            self._http.post(
                "/generate",
                {
                    "input_ids": list(token_ids),
                    "rid": request_id,
                    "extra_key": salt,
                    "sampling_params": {"max_new_tokens": new_tokens, "temperature": temperature},
                },
            ),
            "/generate",
        )
        meta = answer.get("meta_info")
        meta = meta if isinstance(meta, dict) else {}
        return Generation(
            output_tokens=count_of(meta, "completion_tokens") or 0,
            output_ids=ids_of(answer.get("output_ids")),
            drafts=count_of(meta, "spec_verify_ct"),
            # Each release has its own names (managers/tokenizer_manager.py: 0.5.12 and newer, 0.5.11, 0.5.10).
            draft_tokens=count_of(meta, "spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
            accepted_tokens=count_of(meta, "spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
        )

    def counters(self) -> Counters | None:
        """None: every answer has the request's own."""
        return None

    def limit(self, session: str) -> str | None:
        """As ``Server`` has it; of a spool on another host nothing is known."""
        return None if self.spool is None else spooled_limit(self.spool, session, self.token)

    def fetch(self, session: str, into: Path) -> Path:  # noqa: ARG002  SGLang has no way to send files
        """As ``Server`` has it."""
        if self.spool is not None and is_folder(self.spool / session):
            return self.spool / session
        if is_spool_here(self.spool, self.token):
            raise InputError(
                self.url,
                f"its workers recorded nothing: {self.spool} has no folder of this session",
                remedy="see the server's log for lines with eagle-parity; without any, the hook isn't loaded, or it"
                " writes to another folder",
            )
        there = f"{self._stated or self.spool or 'its spool'}/{session}"
        raise InputError(
            self.url,
            f"the recorded parts lie on the server's host, in {there}, and that folder can't be read from here",
            remedy=f"copy it here, e.g. `scp -r HOST:{there} .` or `docker cp CONTAINER:{there} .`, and run"
            f" `eagle-parity capture sglang --from-parts {session} --output` with the same folder as now",
        )

    def discard(self, session: str) -> None:
        """As ``Server`` has it."""
        if self.spool is not None:
            shutil.rmtree(self.spool / session, ignore_errors=True)


def spool_of_hook(forward_hooks: object) -> Path | None:
    """The spool that the launch option ``--forward-hooks`` names for our hook; None where it has no such hook."""
    if not isinstance(forward_hooks, list):
        return None
    for spec in forward_hooks:
        if isinstance(spec, dict) and spec.get("hook_factory") in {HOOK_FACTORY, EXPORTED_HOOK}:
            config = spec.get("config")
            folder = config.get("spool") if isinstance(config, dict) else None
            return Path(folder) if isinstance(folder, str) and folder else None
    return None
