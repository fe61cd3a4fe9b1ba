"""An S3-compatible server on loopback (moto's), which counts what it gives and lets a test come in between."""

from __future__ import annotations

import threading
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

BUCKET = "bucket"


@dataclass
class LoopbackS3:
    """The server.

    Attributes:
        address: its URL.
        given: method, path and bytes of each answer.
        before: called with method and path of each request; a status that it returns is the answer.
    """

    app: Any
    address: str = ""
    given: list[tuple[str, str, int]] = field(default_factory=list)
    before: Callable[[str, str], str | None] = lambda _method, _path: None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        status = self.before(method, path)
        if status is not None:
            start_response(status, [("Content-Length", "0")])
            return [b""]
        data = b"".join(self.app(environ, start_response))
        self.given.append((method, path, len(data)))
        return [data]

    def bytes_of(self, path: str) -> int:
        return sum(count for method, given, count in self.given if method == "GET" and given == path)

    def client(self, **settings: Any) -> Any:
        import boto3

        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=self.address, **(keys | settings))

    def put(self, key: str, data: bytes) -> None:
        self.client().put_object(Bucket=BUCKET, Key=key, Body=data)

    def put_folder(self, folder: Path, key: str) -> str:
        """Uploads all files; returns the URL."""
        client = self.client()
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                place = f"{key}/{path.relative_to(folder).as_posix()}"
                client.put_object(Bucket=BUCKET, Key=place, Body=path.read_bytes())
        return f"s3://{BUCKET}/{key}"

    def require_keys(self, *, required: bool) -> None:
        """Whether only keys of users are taken, of whom there are none."""
        allowed = b"0" if required else b"inf"
        headers = {"Content-Type": "text/plain"}  # of a form nothing would be left
        request = urllib.request.Request(f"{self.address}/moto-api/reset-auth", allowed, headers)  # noqa: S310  loopback
        urllib.request.urlopen(request).close()  # noqa: S310  as above


def serve() -> Iterator[LoopbackS3]:
    """Runs it in a thread; a generator for a fixture."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):  # type: ignore[misc,unused-ignore]  # typed where it is
        def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002  the base's name
            pass

    storage = LoopbackS3(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, storage, threaded=True, request_handler=Quiet)
    storage.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        storage.client().create_bucket(Bucket=BUCKET)
        yield storage
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
