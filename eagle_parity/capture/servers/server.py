"""What a capture needs of a running server, and the HTTP that both engines share."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from eagle_parity.capture.spool import SPOOL_ENV, TOKEN_ENV, read_token
from eagle_parity.errors import InputError, MissingExtraError, UsageError
from eagle_parity.quoting import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import httpx

    from eagle_parity.capture.format import Acceptance

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 600.0
"""A prompt of a million tokens takes minutes; a server that died closes the connection at once."""
MAX_ERROR_CHARS = 300
MAX_ANSWER_BYTES = 128 * 1024**2
"""The token ids of a prompt of millions, or a piece of a file from each of a few ranks; more is no answer of ours."""


class NoAnswerError(InputError):
    """The server can't be reached, or has stopped in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a server says of one request.

    Attributes:
        prompt_tokens: as it counted them; None where it doesn't say.
        cached_tokens: of these, what it took from its prefix cache; None where it doesn't say.
        output_tokens: that it generated.
        drafts, draft_tokens, accepted_tokens: of speculation, where the engine counts by request.
        output_ids: the generated tokens; None where the server gives no ids.
    """

    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    output_ids: tuple[int, ...] | None = None


class Server(Protocol):
    """One running server."""

    @property
    def engine(self) -> str:
        """``sglang`` or ``vllm``."""
        ...

    @property
    def url(self) -> str:
        """Its address, without a path."""
        ...

    @property
    def version(self) -> str:
        """Of the engine, as the server says it; empty where it doesn't."""
        ...

    @property
    def token(self) -> str:
        """Of the spool: what makes requests ours."""
        ...

    def architectures(self) -> list[str]:
        """The target's, as its config names them; empty where only the workers say it."""
        ...

    def max_tokens(self) -> int | None:
        """The longest prompt that it takes; None where it doesn't say."""
        ...

    def recording(self, session: str = "", *, generated: bool = False) -> AbstractContextManager[None]:
        """Switches the hooks on, and off again whatever happens, unless another session's capture goes on.

        Args:
            session: whose requests are to be recorded.
            generated: rows of generated tokens as well, where the engine's hook can tell the accepted ones.
        """
        ...

    def encode_text(self, text: str) -> list[int]:
        """Token ids of a text, by the server's own tokenizer."""
        ...

    def encode_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation, by the server's own chat template."""
        ...

    def generate(
        self, token_ids: Sequence[int], *, request_id: str, salt: str, new_tokens: int, temperature: float = 0.0
    ) -> Generation:
        """Sends token ids as they are.

        Args:
            token_ids: the prompt.
            request_id: by which the workers know it.
            salt: requests of different salts share no cached prefix.
            new_tokens: to generate, at least 1.
            temperature: 0 decodes greedily.
        """
        ...

    def counters(self) -> Counters | None:
        """The server's own counts of speculation so far; None where each request has them."""
        ...

    def fetch(self, session: str, into: Path) -> Path:
        """The session's parts: where they lie, or a copy in ``into``.

        Raises:
            InputError: they can't be reached from here; the message says where they lie and how to get them.
        """
        ...

    def discard(self, session: str) -> None:
        """Removes the parts, where the engine gives a way to them; they are in the capture."""
        ...


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the server started."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    source: str

    def until(self, later: Counters, *, output_tokens: int) -> Acceptance | None:
        """What was counted between the two readings; None where the server was started anew between them."""
        from eagle_parity.capture.format import Acceptance

        if later.drafts < self.drafts or later.accepted_tokens < self.accepted_tokens:
            return None
        return Acceptance(
            drafts=later.drafts - self.drafts,
            draft_tokens=later.draft_tokens - self.draft_tokens,
            accepted_tokens=later.accepted_tokens - self.accepted_tokens,
            output_tokens=output_tokens,
            source=self.source,
            other_traffic=True,
        )


_ID_LIMIT = 2**31
"""No vocabulary is larger; what is, is no id."""
_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class Connection:
    """JSON over HTTP to one server, with errors that say which server and what to do.

    Args:
        url: as the user gave it.
        api_key: sent as a bearer token where given.
    """

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError("capturing from a server", "live", "httpx") from error
        self.url = checked_url(url)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # A proxy of the environment has no business between this and a server on loopback.
        self._client = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
        )

    def get(self, path: str) -> httpx.Response:
        """The answer, whatever its status.

        Raises:
            NoAnswerError: there was none.
            InputError: it was longer than any that this is for.
        """
        return self._send("GET", path)

    def post(self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """As ``get``, with a JSON body."""
        return self.post_bytes(path, json.dumps(dict(body)).encode(), headers=headers)

    def post_bytes(self, path: str, body: bytes, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """As ``post``, for a body that is signed as it is sent."""
        return self._send("POST", path, content=body, headers={"Content-Type": "application/json", **(headers or {})})

    def json(self, response: httpx.Response, what: str) -> Any:
        """The body of a good answer.

        Raises:
            InputError: it is no good one.
        """
        if response.is_redirect:
            where = plain(response.headers.get("location", ""))
            raise InputError(
                self.url, f"{what} was answered with a redirect to {where}", remedy="give that address to --server"
            )
        if response.status_code >= 400:  # noqa: PLR2004  where HTTP's errors begin
            raise InputError(
                self.url,
                f"{what} was answered with {response.status_code} ({plain(response.text)[:MAX_ERROR_CHARS]})",
                remedy="--api-key gives the server's key" if response.status_code in {401, 403} else "",
            )
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise InputError(
                self.url, f"{what} was not answered with JSON", expected="an SGLang or vLLM server"
            ) from error

    def object(self, response: httpx.Response, what: str) -> dict[str, Any]:
        """The body of a good answer that is a JSON object.

        Raises:
            InputError: it is no good one, or something else.
        """
        answer = self.json(response, what)
        if not isinstance(answer, dict):
            raise InputError(self.url, f"{what} was answered with something else than an object of JSON")
        return answer

    def encoded(self, response: httpx.Response) -> Any:
        """The body of an answer to ``/tokenize``.

        Raises:
            ValueError: the server refuses this text or conversation; others it may take.
            InputError: it has no such thing.
        """
        if response.status_code in {400, 422}:
            raise ValueError(f"the server: {plain(response.text)[:MAX_ERROR_CHARS]}")
        return self.json(response, "/tokenize")

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        import httpx

        try:
            with self._client.stream(method, path, **arguments) as response:
                content = bytearray()
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > MAX_ANSWER_BYTES:
                        raise InputError(
                            self.url, f"its answer to {method} {path} is longer than {MAX_ANSWER_BYTES >> 20} MiB"
                        )
        except httpx.HTTPError as error:
            raise NoAnswerError(
                self.url, f"no answer to {method} {path} ({one_line(error)})", expected="a running server"
            ) from error
        # What was decoded above is not to be decoded again.
        headers = [(k, v) for k, v in response.headers.multi_items() if k.lower() not in _OF_THE_WIRE]
        return httpx.Response(response.status_code, headers=headers, content=bytes(content), request=response.request)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def checked_url(url: str) -> str:
    """The address without a path.

    Raises:
        UsageError: it is none.
    """
    from urllib.parse import urlsplit

    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        _ = parts.port  # reading it is what checks it
        good = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"--server {url!r}: expected an address such as http://127.0.0.1:30000")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def count_of(meta: Mapping[str, Any], *names: str) -> int | None:
    """The first of some counts that an answer has; None where it has none, or something else under that name."""
    for name in names:
        value = meta.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def ids_of(value: object) -> tuple[int, ...] | None:
    """Token ids of an answer; None where it has none, or something else in their place."""
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < _ID_LIMIT for token in value):
        return None
    return tuple(value)


def token_of(spool: Path | None, token: str | None) -> str | None:
    """The spool's token: as given, else of the environment, else from its folder if that is within reach."""
    token = token or os.environ.get(TOKEN_ENV)
    if token:
        return token.strip()
    if spool is None:
        return None
    try:
        return read_token(spool)
    except (OSError, ValueError):
        return None


def no_token(url: str, spool: Path | None, *, another: bool = False) -> InputError:
    """What to say where there is no token, or ``another`` than the server's."""
    where = f"{spool}/token" if spool else f"the spool's folder, in the file token ({SPOOL_ENV})"
    return InputError(
        url,
        f"the token of here isn't that of its spool ({where}, {TOKEN_ENV} or --token)"
        if another
        else f"its spool's token can't be read from here ({where})",
        remedy=f"pass --spool FOLDER where it is mounted, or the content of that file in {TOKEN_ENV} or with --token",
    )


def prometheus_counts(text: str, names: Mapping[str, str]) -> dict[str, int]:
    """Sums of some counters of a Prometheus page, over all of their labels.

    Args:
        text: the page.
        names: counter by the key under which its sum is wanted.
    """
    sums = dict.fromkeys(names, 0.0)
    keys = {name: key for key, name in names.items()}
    for line in text.splitlines():
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        if name in keys:
            try:
                value = float(rest.rpartition("}")[2].split()[0])  # a timestamp may follow
            except (ValueError, IndexError):
                continue
            if math.isfinite(value):
                sums[keys[name]] += value
    return {key: int(value) for key, value in sums.items()}
