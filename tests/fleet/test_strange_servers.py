"""What answers is no S3 server: a login page of a public network, a web server, a proxy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recorder.cli import main
from recorder.fleet.store import open_store
from recorder.fleet.store.base import PART_BYTES, Store, StoreRefusedError, StoreUnreachableError
from recorder.fleet.uploading import upload_session
from tests.fleet.hostile_server import Request, hostile_server
from tests.fleet.sessions import make_session

PAGE = b"<html><body>Accept the terms of this network</body></html>"


@contextmanager
def answering(
    status: int, page: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Store]:
    """The store of a server that gives every answer the same status and page."""
    where = "http://127.0.0.1:9/login" if status in (302, 307) else ""

    def answer(request: Request) -> bool:
        request.reply(page, status, Content_Type="text/html", ETag="", Location=where)
        return True

    with hostile_server(monkeypatch, tmp_path) as server:
        server.lies.append(answer)
        yield open_store("s3://fleet/v")


@pytest.fixture(params=[200, 302, 307, 404])
def strangers_store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Store]:
    with answering(request.param, PAGE, monkeypatch, tmp_path) as store:
        yield store


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


XML = "<Error><Code>{}</Code><Message>of the server</Message></Error>"


@pytest.mark.parametrize(
    ("status", "code", "kind", "message"),
    [
        (503, "SlowDown", StoreUnreachableError, ": the server cannot be reached: "),
        (403, "RequestTimeTooSkewed", StoreRefusedError, "the clock of this machine is wrong"),
        (400, "ExpiredToken", StoreRefusedError, "the credentials have expired"),
        (403, "AccessDenied", StoreRefusedError, "the server refuses these credentials"),
    ],
)
def test_what_is_so_for_all_sessions_is_said_once(
    status: int,
    code: str,
    kind: type[Exception],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # of botocore, between its attempts
    for name in ("a", "b"):
        make_session(tmp_path / "root" / name)
    config = tmp_path / "rig.yaml"
    config.write_text(
        f"version: 1\nsession: {{root: {tmp_path}/root}}\n"
        'sensors: {imu: {driver: xsens, source: "sim:"}}\n'
        "upload: {url: s3://fleet/v, when: always, metered: true}\n"
    )
    for name in ("a", "b"):
        (tmp_path / f"root/{name}/_recorder/checksums.csv").write_text("file,md5\n")
    with answering(status, XML.format(code).encode(), monkeypatch, tmp_path) as store:
        with pytest.raises(kind):
            store.put_new("key", b"data")
        with pytest.raises(kind):
            store.stat("key")
        assert main(["upload", str(tmp_path / "root"), store.url]) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and message in said
        later = kind is StoreUnreachableError
        assert main(["upload", "--pending", str(config)]) == (0 if later else 1)
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and message in said and ("not now: " in said) is later


def test_a_session_is_not_uploaded_to_a_stranger(strangers_store: Store, tmp_path: Path) -> None:
    session = make_session(tmp_path / "drive")
    with pytest.raises(StoreUnreachableError):
        upload_session(session, strangers_store)
    assert not (session / "_recorder/uploaded.json").exists()
