"""A server does what it is asked, and its reply is lost: the link breaks, or the uploader dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.fleet.store import open_store
from recorder.fleet.store.base import PART_BYTES, Store, download
from recorder.fleet.store.s3 import S3Store
from recorder.fleet.uploading import upload_session
from tests.fleet.conftest import CAMPAIGN
from tests.fleet.proxy import Link
from tests.fleet.servers import S3Server
from tests.fleet.sessions import make_session
from tests.fleet.test_uploading import stored

LARGE = PART_BYTES + 4321
s3_servers = pytest.mark.parametrize("server", CAMPAIGN[1:], indirect=True)


class Killed(BaseException):
    """Ends the uploader where a kill would."""


def kill_after(store: Store, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the uploader die when the server has done what a method of boto3 asks for."""
    assert isinstance(store, S3Store)
    call: Callable[..., Any] = getattr(store._client, name)

    def killed(**more: Any) -> None:
        call(**more)
        raise Killed

    monkeypatch.setattr(store._client, name, killed)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return make_session(tmp_path / "root/drive", large=LARGE)


@s3_servers
@pytest.mark.parametrize(
    "request_head",
    [
        b"POST /fleet/V/drive/_archives/l5kit/large?uploads",
        pytest.param(b"partNumber=2", marks=pytest.mark.campaign),
        b"POST /fleet/V/drive/_archives/l5kit/large?uploadId=",
        pytest.param(b"PUT /fleet/V/drive/report.html", marks=pytest.mark.campaign),
        b"PUT /fleet/V/_manifests/drive.json",
    ],
)
def test_a_lost_reply_changes_nothing(
    server: S3Server,
    url: str,
    session: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request_head: bytes,
) -> None:
    link = Link(server.environment["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", link.address)
    link.lose = request_head.replace(b"/V/", url.removeprefix("s3://fleet").encode() + b"/")
    done = upload_session(session, open_store(url), read_back=True)
    assert not link.lose, "there was no such request"
    link.close()
    assert done.read_back
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
    reference = open_store(f"file://{tmp_path}/reference")
    upload_session(session, reference)
    assert stored(open_store(url)) == stored(reference)
    assert server.unfinished(url) == {}


@s3_servers
@pytest.mark.parametrize(
    "call",
    [
        "create_multipart_upload",
        pytest.param("upload_part", marks=pytest.mark.campaign),
        "complete_multipart_upload",
        pytest.param("put_object", marks=pytest.mark.campaign),
    ],
)
def test_a_kill_before_the_reply_is_noted_leaves_nothing(
    server: S3Server, url: str, session: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url)
    kill_after(store, call, monkeypatch)
    with pytest.raises(Killed):
        upload_session(session, store)
    done = upload_session(session, open_store(url), read_back=True)
    assert done.read_back and server.unfinished(url) == {}
    assert not (session / "_recorder/upload").exists()


@s3_servers
def test_an_upload_of_someone_else_goes_on(
    server: S3Server, url: str, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That ours may have left an upload is no reason to end another one of the same key."""
    client, key = server.client(), f"{url.removeprefix('s3://fleet/')}/drive/_archives/l5kit/large"
    theirs = {"Bucket": "fleet", "Key": key}
    theirs["UploadId"] = client.create_multipart_upload(**theirs)["UploadId"]
    etag = client.upload_part(**theirs, PartNumber=1, Body=b"theirs")["ETag"]
    store = open_store(url)
    kill_after(store, "create_multipart_upload", monkeypatch)
    with pytest.raises(Killed):
        upload_session(session, store)
    upload_session(session, open_store(url))
    assert [*server.unfinished(url).values()] == [key]
    parts = client.list_parts(**theirs)["Parts"]
    assert [(part["PartNumber"], part["ETag"]) for part in parts] == [(1, etag)]
    client.abort_multipart_upload(**theirs)


@s3_servers
def test_an_upload_ends_where_the_object_has_come_meanwhile(
    server: S3Server, url: str, store: Store, session: Path
) -> None:
    """As from a second uploader of the same session."""
    assert upload_until_part(session, store, 2)
    path = "drive/_archives/l5kit/large"
    key = f"{url.removeprefix('s3://fleet/')}/{path}"
    assert [*server.unfinished(url).values()] == [key]
    data = (session / "_archives/l5kit/large").read_bytes()
    server.client().put_object(Bucket="fleet", Key=key, Body=data)
    upload_session(session, store, read_back=True)
    assert server.unfinished(url) == {} and not (session / "_recorder/upload").exists()


@pytest.mark.parametrize("server", CAMPAIGN, indirect=True)
def test_what_was_begun_of_a_file_that_is_gone_is_removed(
    server: S3Server | None, store: Store, session: Path, tmp_path: Path
) -> None:
    """As an archive that was packed anew under another name."""
    large = session / "_archives/l5kit/large"
    before = upload_until_part(session, store, 2)
    assert before  # the record of the upload
    large.rename(large.with_name("larger"))
    upload_session(session, store, read_back=True)
    assert not (session / "_recorder/upload").exists()
    download(store, "drive/_archives/l5kit/larger", tmp_path / "back", LARGE)
    assert (tmp_path / "back").read_bytes() == large.with_name("larger").read_bytes()
    if server is not None:
        assert server.unfinished(store.url) == {}
    else:
        assert not list(tmp_path.rglob(".unfinished-*"))


def upload_until_part(session: Path, store: Store, part: int) -> list[Path]:
    """Upload, and die before a part of the large file is sent; returns the records."""
    sizes: list[int] = []

    def pace(size: int) -> None:
        sizes.append(size)
        if sizes.count(PART_BYTES) == part - 1 and size == LARGE % PART_BYTES:
            raise Killed

    with pytest.raises(Killed):
        upload_session(session, store, pace=pace)
    return list((session / "_recorder/upload").iterdir())
