"""The HTTP that both engines share."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.servers.server import NoAnswerError
from eagle_parity.errors import InputError, MissingExtraError, UsageError
from eagle_parity.quoting import one_line, plain, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 600.0
"""A prompt of a million tokens takes minutes; a server that died closes the connection at once."""
MAX_ERROR_CHARS = 300
MAX_ANSWER_BYTES = 128 * 1024**2
"""The token ids of a prompt of millions, or a piece of a file from each of a few ranks; more is no answer of ours."""
_NOT_KEPT = frozenset({"content-encoding", "content-length", "transfer-encoding", "content-type"})
"""Of an answer's headers. What was decoded once is not to be decoded again, and a charset names any codec of Python's,
some of which take no text: every answer is UTF-8."""


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
        if api_key and not is_plain(api_key):
            raise UsageError("the server's API key isn't plain text: a header can't hold it")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            # A proxy of the environment has no business between this and a server on loopback.
            self._client = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
                trust_env=False,
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise no_address(url, one_line(error)) from error

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

        until = time.monotonic() + ANSWER_SECONDS
        try:
            with self._client.stream(method, path, **arguments) as response:
                content = bytearray()
                for piece in response.iter_bytes():
                    content += piece
                    if time.monotonic() > until:  # a byte now and then ends no wait for a byte
                        raise httpx.ReadTimeout(f"its end had not come after {ANSWER_SECONDS:.0f} seconds")
                    if len(content) > MAX_ANSWER_BYTES:
                        raise InputError(
                            self.url, f"its answer to {method} {path} is longer than {MAX_ANSWER_BYTES >> 20} MiB"
                        )
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # the last one of a name that is none
            raise NoAnswerError(
                self.url, f"no answer to {method} {path} ({one_line(error)})", expected="a running server"
            ) from error
        headers = [(k, v) for k, v in response.headers.multi_items() if k.lower() not in _NOT_KEPT]
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
        raise no_address(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def no_address(url: str, found: str = "") -> UsageError:
    """What to say of an address that is none."""
    why = f" ({found})" if found else ""
    return UsageError(f"--server {quoted(url)}: expected an address such as http://127.0.0.1:30000{why}")


def is_plain(text: str) -> bool:
    """Whether a text can stand in a header: printable ASCII."""
    return text.isascii() and text.isprintable()
