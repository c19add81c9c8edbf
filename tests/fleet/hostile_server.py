"""An S3 server on this machine that answers as `Hostile.lies` say: requests that match get lies.

It keeps objects in memory and checks no signature; its answers follow the API Reference of Amazon
S3 where no lie is given.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

Lie = Callable[["Request"], bool]
"""Answers a request, or returns False: then the truth is answered."""


class Hostile(ThreadingHTTPServer):
    """The server.

    Attributes:
        objects: by ``BUCKET/KEY``.
        lies: asked in their order, before each answer.
        requests: ``METHOD PATH?QUERY`` of all that came.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.objects: dict[str, bytes] = {}
        self.lies: list[Lie] = []
        self.requests: list[str] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that ends a lie by closing the connection is no error."""


class Request(BaseHTTPRequestHandler):
    """A request, and how it is answered.

    Attributes:
        key: ``BUCKET/KEY``.
        query: of the address.
        body: what was sent.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Hostile

    def _take(self) -> None:
        parts = urlsplit(self.path)
        self.key = unquote(parts.path).lstrip("/")
        self.query = parse_qs(parts.query, keep_blank_values=True)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(f"{self.command} {self.path}")
        if not any(lie(self) for lie in self.server.lies):
            getattr(self, f"_{self.command.lower()}")()

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._take
        raise AttributeError(name)

    def reply(self, body: bytes = b"", status: int = 200, **headers: str) -> None:
        """Answer.

        Args:
            body: of the answer; left out after a HEAD.
            status: of HTTP.
            headers: with ``_`` for ``-``; an empty one is left out.
        """
        self.send_response(status)
        given = {"Content_Length": str(len(body)), "ETag": f'"{_md5(body)}"'} | headers
        for name, value in given.items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):
                self.wfile.write(body)

    def error(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self.reply(text.encode(), status)

    def listing(self, keys: list[tuple[str, int]], more: str = "") -> None:
        """Answer with a page of a listing; `more`: the token of the next one."""
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size></Contents>"
            for key, size in keys
        )
        token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
        self.reply(
            f"<ListBucketResult><IsTruncated>{str(bool(more)).lower()}</IsTruncated>"
            f"{token}{items}</ListBucketResult>".encode()
        )

    @property
    def is_listing(self) -> bool:
        return self.command == "GET" and "list-type" in self.query

    def listed(self) -> list[tuple[str, int]]:
        """The keys and sizes that a listing has."""
        bucket, prefix = self.key.rstrip("/"), self.query.get("prefix", [""])[0]
        return [
            (key.removeprefix(f"{bucket}/"), len(data))
            for key, data in sorted(self.server.objects.items())
            if key.startswith(f"{bucket}/{prefix}")
        ]

    def _head(self) -> None:
        self._get()

    def _get(self) -> None:
        objects = self.server.objects
        if self.is_listing:
            self.listing(self.listed())
        elif "uploads" in self.query:
            self.reply(
                b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
                b"</ListMultipartUploadsResult>"
            )
        elif self.key not in objects:
            self.error(404, "NoSuchKey")
        else:
            self.reply(objects[self.key])

    def _put(self) -> None:
        if self.headers.get("If-None-Match") == "*" and self.key in self.server.objects:
            self.error(412, "PreconditionFailed")
            return
        self.server.objects[self.key] = self.body
        self.reply(ETag=f'"{_md5(self.body)}"')

    def log_message(self, *_: object) -> None:
        pass


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@contextmanager
def hostile_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hostile]:
    """A server that the environment names, for a while."""
    with Hostile() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
