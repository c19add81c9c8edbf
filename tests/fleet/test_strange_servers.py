"""What answers is no S3 server: a login page of a public network, a web server, a proxy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from recorder.fleet.store import PART_BYTES, Store, StoreUnreachableError, open_store
from recorder.fleet.uploading import upload_session
from tests.fleet.sessions import make_session

PAGE = b"<html><body>Accept the terms of this network</body></html>"


class Stranger(BaseHTTPRequestHandler):
    """Answers every request with the same page."""

    status = 200

    def answer(self) -> None:
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            left -= len(self.rfile.read(min(left, 1 << 20)))
        self.send_response(self.status)
        if self.status in (302, 307):
            self.send_header("Location", "http://127.0.0.1:9/login")
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(PAGE)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=[200, 302, 307, 404])
def strangers_store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Store]:
    monkeypatch.setattr(Stranger, "status", request.param)
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        yield open_store("s3://fleet/v")
        server.shutdown()
        thread.join()


def test_nothing_counts_as_done_that_a_stranger_answers(
    strangers_store: Store, tmp_path: Path
) -> None:
    store, small, large = strangers_store, tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"data")
    large.write_bytes(bytes(PART_BYTES + 1))
    calls: list[Callable[[], object]] = [
        lambda: store.stat("key"),
        lambda: list(store.list()),
        lambda: store.read("key"),
        lambda: store.put_new("key", b"data"),
        lambda: store.upload_new("key", small),
        lambda: store.upload_new("key", large, record=tmp_path / "record"),
    ]
    for call in calls:
        with pytest.raises(StoreUnreachableError, match="what answers is no S3 server") as error:
            call()
        assert "AWS_ENDPOINT_URL" in str(error.value) and "network wants a login" in str(
            error.value
        )


def test_a_session_is_not_uploaded_to_a_stranger(strangers_store: Store, tmp_path: Path) -> None:
    session = make_session(tmp_path / "drive")
    with pytest.raises(StoreUnreachableError):
        upload_session(session, strangers_store)
    assert not (session / "_recorder/uploaded.json").exists()
