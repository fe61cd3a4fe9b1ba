"""A running vLLM server, with this package's endpoint plugin or in development mode.

- ``POST /eagle_parity/{verb}`` is the plugin's route (``eagle_parity.capture.vllm``, vLLM 0.26.0 and newer): it calls a
  method on every rank. ``POST /collective_rpc`` reaches the same methods where ``VLLM_SERVER_DEV_MODE=1``
  (``entrypoints/serve/dev/rpc``).
- ``/v1/completions`` takes token ids, ``request_id``, which every rank sees within its own, and ``cache_salt``, under
  which alone a cached prefix is found (0.32.0, ``entrypoints/openai/completion/protocol.py``).
- ``/tokenize`` knows texts and conversations.
- Speculation is counted on ``/metrics``, for all requests together (``v1/spec_decode/metrics.py``).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.rank_record import record_of
from eagle_parity.capture.servers.answers import count_of, ids_of, prometheus_counts
from eagle_parity.capture.servers.connection import MAX_ERROR_CHARS, Connection
from eagle_parity.capture.servers.server import Counters, Generation
from eagle_parity.capture.servers.spool_token import no_token, token_of
from eagle_parity.capture.servers.spooled_limit import spooled_limit
from eagle_parity.capture.spool.files import is_spooled_name, record_name
from eagle_parity.capture.spool.folder import default_spool
from eagle_parity.capture.spool.limits import MIN_FREE_BYTES
from eagle_parity.capture.vllm.endpoint import PROOF_HEADER, proof
from eagle_parity.capture.vllm.live_objects import EXTRACT
from eagle_parity.errors import InputError, ParityError
from eagle_parity.files import is_folder
from eagle_parity.quoting import plain, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_METRICS = {
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
}
LIMIT_SECONDS = 2.0
"""Between two questions of a server on another host whether a limit was reached: each goes to every rank."""
MAX_FILES = 1_000_000
"""Of one rank and session; a rank that names more is not believed."""


class VllmServer:
    """See ``Server``.

    Args:
        url: its address.
        api_key: the server's.
        spool: the hook's folder as it is seen from here.
        token: of the spool, where its folder isn't within reach.

    Raises:
        InputError: no vLLM server answers, or it has no hook.
    """

    engine = "vllm"

    def __init__(
        self, url: str, *, api_key: str | None = None, spool: str | None = None, token: str | None = None
    ) -> None:
        self._http = Connection(url, api_key=api_key)
        self.url = self._http.url
        answered = self._http.get("/version")
        if answered.status_code == 404:  # noqa: PLR2004  not found
            raise InputError(self.url, "it has no /version", expected="a vLLM server")
        self.version = str(self._http.object(answered, "/version").get("version") or "")
        models = self._http.object(self._http.get("/v1/models"), "/v1/models").get("data")
        first = models[0] if isinstance(models, list) and models else None
        self._model: dict[str, Any] = first if isinstance(first, dict) else {}
        named = Path(spool) if spool else default_spool()
        self._found = token_of(named, token)
        self._route = ""
        self._asks_again_at = 0.0
        self.spool = named  # until the workers say theirs
        self.facts = self.call("info")
        self.spool = Path(str(self.facts[0].get("spool")))
        self.token = self._found or token_of(self.spool, None) or ""
        if not self.token:
            raise no_token(self.url, self.spool)

    def call(self, verb: str, **arguments: Any) -> list[dict[str, Any]]:
        """One method of the hook on every rank.

        Raises:
            InputError: it can't be reached, or a rank says that it can't.
        """
        answers = self._call(verb, arguments)
        if not isinstance(answers, list) or not answers or not all(isinstance(answer, dict) for answer in answers):
            raise InputError(self.url, f"the hook's {verb} was not answered by the ranks")
        for answer in answers:
            if "error" in answer:
                raise InputError(
                    self.url, f"the hook can't record here: {plain(str(answer['error'])[:MAX_ERROR_CHARS])}"
                )
        return answers

    def _call(self, verb: str, arguments: dict[str, Any]) -> Any:
        if self._route in {"", "plugin"}:
            body = json.dumps(arguments).encode()
            # The token itself stays here: who answers may be anybody.
            shown = {PROOF_HEADER: proof(self._found, verb, body)} if self._found else {}
            response = self._http.post_bytes(f"/eagle_parity/{verb}", body, headers=shown)
            if response.status_code == 403:  # noqa: PLR2004  the plugin is there and wants another token
                raise no_token(self.url, self.spool, another=self._found is not None)
            if response.status_code != 404 or self._route:  # noqa: PLR2004  not found
                self._route = "plugin"
                return self._http.object(response, f"/eagle_parity/{verb}").get("results")
        response = self._http.post(
            "/collective_rpc", {"method": f"eagle_parity_{verb}", "kwargs": arguments, "timeout": 600}
        )
        if response.status_code == 404:  # noqa: PLR2004  not found
            raise InputError(
                self.url,
                "this server was started without the capture hook",
                remedy="install eagle-parity beside vLLM and start it with what `eagle-parity capture vllm"
                " --launch-flags` prints",
            )
        self._route = "rpc"
        return self._http.object(response, "/collective_rpc").get("results")

    def architectures(self) -> list[str]:
        """None: the workers' config is the whole model's."""
        return []

    def max_tokens(self) -> int | None:
        """The context length less the token that is generated."""
        longest = self._model.get("max_model_len")
        return longest - 1 if isinstance(longest, int) and longest > 1 else None

    @contextmanager
    def recording(self, session: str = "", *, generated: bool = False) -> Iterator[None]:
        """As ``Server`` has it."""
        named = {"session": session} if session else {}
        self.facts = self.call("start", **named, **({"generated": True} if generated else {}))
        try:
            yield
        finally:
            with suppress(ParityError):  # a server that died needs no switching off
                self.call("stop", **named)

    def encode_text(self, text: str) -> list[int]:
        """As ``Server`` has it."""
        return self._tokenize({"prompt": text})

    def encode_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """As ``Server`` has it."""
        generation = not messages or messages[-1].get("role") != "assistant"
        return self._tokenize({"messages": list(messages), "add_generation_prompt": generation})

    def _tokenize(self, body: dict[str, Any]) -> list[int]:
        answer = self._http.encoded(self._http.post("/tokenize", {"model": self._model.get("id"), **body}))
        tokens = ids_of(answer.get("tokens")) if isinstance(answer, dict) else None
        if tokens is None:
            raise InputError(self.url, "its /tokenize gives no token ids", remedy="give prompts as token_ids")
        return list(tokens)

    def generate(
        self, token_ids: Sequence[int], *, request_id: str, salt: str, new_tokens: int, temperature: float = 0.0
    ) -> Generation:
        """As ``Server`` has it."""
        answer = self._http.object(
            self._http.post(
                "/v1/completions",
                {
                    "model": self._model.get("id"),
                    "prompt": list(token_ids),
                    "request_id": request_id,
                    "cache_salt": salt,
                    # Above 0 the ranks of a CPU server generate different tokens (vLLM issue 17498).
                    "temperature": temperature,
                    "max_tokens": new_tokens,
                    "return_token_ids": True,
                },
                headers={"X-Request-Id": request_id},
            ),
            "/v1/completions",
        )
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        choices = answer.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        return Generation(
            output_tokens=count_of(usage, "completion_tokens") or 0,
            output_ids=ids_of(choice.get("token_ids")) if isinstance(choice, dict) else None,
        )

    def counters(self) -> Counters | None:
        """As ``Server`` has it; None where there is no draft, and what is counted is the target's own tokens."""
        server = self.facts[0].get("server")
        if isinstance(server, dict) and server.get("method") == EXTRACT:
            return None
        response = self._http.get("/metrics")
        if response.status_code != 200 or _METRICS["drafts"] not in response.text:  # noqa: PLR2004  HTTP's OK
            return None
        return Counters(**prometheus_counts(response.text, _METRICS), source="/metrics: vllm:spec_decode_*_total")

    def limit(self, session: str) -> str | None:
        """As ``Server`` has it; through the route, no more often than every ``LIMIT_SECONDS``."""
        if is_folder(self.spool / session):
            return spooled_limit(self.spool, session, self.token)
        if time.monotonic() < self._asks_again_at:
            return None
        self._asks_again_at = time.monotonic() + LIMIT_SECONDS
        for rank in (str(answer.get("rank")) for answer in self.facts):
            with suppress(ParityError):  # no record yet, or the server is gone: the next request says that
                name = record_name(rank)
                limit = record_of(self._piece(session, rank, name, 0), name, rank).limit
                if limit:
                    return plain(limit)
        return None

    def fetch(self, session: str, into: Path) -> Path:
        """Where they lie if that is this host, else a copy through the server."""
        folder = self.spool / session
        try:
            if next(folder.iterdir(), None) is not None:
                return folder
        except (OSError, ValueError):  # the latter of a name that can't be one: the server says it
            pass
        listed = [self._listed(answer) for answer in self.call("files", session=session)]
        if is_folder(folder) and not any(files for _, files in listed):
            return folder  # nothing was recorded, and why, such as a full disk, can be seen there
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        needed, free = sum(sum(files.values()) for _, files in listed), shutil.disk_usage(into).free
        if needed + MIN_FREE_BYTES > free:
            raise InputError(
                self.url,
                f"the recorded parts have {needed:,} bytes, and {into.parent} has {free:,} free",
                remedy="capture fewer sequences at once, or set TMPDIR to a larger disk",
            )
        for rank, files in listed:
            for name, size in files.items():
                # A part never changes once it has its name; a rank's record does.
                if name.endswith(".json") or not (into / name).is_file() or (into / name).stat().st_size != size:
                    self._fetch_file(session, rank, name, size, into)
        return into

    def _listed(self, answer: Mapping[str, Any]) -> tuple[str, dict[str, int]]:
        """One rank's files and their sizes: names of the spool's own making, whatever the server says."""
        rank, files = answer.get("rank"), answer.get("files")
        if not isinstance(rank, str) or not isinstance(files, dict) or len(files) > MAX_FILES:
            raise InputError(self.url, "a rank's list of its parts is no such list")
        for name, size in files.items():
            if not is_spooled_name(name, rank) or type(size) is not int or size < 0:
                raise InputError(self.url, f"a rank calls one of its parts {plain(name)}, of {quoted(size)} bytes")
        return rank, files

    def _fetch_file(self, session: str, rank: str, name: str, size: int, into: Path) -> None:
        with os.fdopen(os.open(into / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            while file.tell() < size:
                piece = self._piece(session, rank, name, file.tell())
                if not piece:
                    raise InputError(self.url, f"{name} ends at {file.tell()} of {size} bytes")
                file.write(piece[: size - file.tell()])

    def _piece(self, session: str, rank: str, name: str, offset: int) -> bytes:
        answers = self.call("read", session=session, name=name, offset=offset)
        data = next((a["data"] for a in answers if a.get("rank") == rank and "data" in a), "")
        try:
            return base64.b64decode(data, validate=True)
        except (ValueError, TypeError) as error:
            raise InputError(self.url, f"a piece of {name} is no base64") from error

    def discard(self, session: str) -> None:
        """As ``Server`` has it."""
        folder = self.spool / session
        if is_folder(folder):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            with suppress(ParityError):  # the capture is whole, whatever becomes of its parts
                self.call("discard", session=session)
