"""What every store does, on every store: folders, and S3 servers of other people."""

from __future__ import annotations

import hashlib
import os
import random
import time
from pathlib import Path

import pytest

from recorder.common.errors import StorageError, UsageError
from recorder.fleet.store import open_store
from recorder.fleet.store.base import (
    PART_BYTES,
    ObjectExistsError,
    Store,
    StoreRefusedError,
    StoreUnreachableError,
    UploadRecord,
    download,
    same_content,
)
from tests.fleet.conftest import ALL, CAMPAIGN, use
from tests.fleet.proxy import Link
from tests.fleet.servers import S3Server

all_stores = pytest.mark.parametrize("server", ALL, indirect=True)
s3_stores = pytest.mark.parametrize("server", ALL[1:], indirect=True)
ODD = "drive 1/ä+%25&?#=;,@ü.bin"


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "video.avi"
    path.write_bytes(content(2 * PART_BYTES + 12345))
    return path


@all_stores
def test_what_is_put_is_there_and_nothing_else(store: Store) -> None:
    assert store.stat("a/b") is None
    assert list(store.list()) == []
    for key in ("a/b", "a-b", "a/c/d", "z", ODD):
        store.put_new(key, key.encode())
    for key in ("a/b", ODD):
        assert store.read(key) == key.encode()
        found = store.stat(key)
        assert found is not None and (found.key, found.size) == (key, len(key.encode()))
    sizes = {o.key: o.size for o in store.list()}
    assert sizes == {"a-b": 3, "a/b": 3, "a/c/d": 5, ODD: len(ODD.encode()), "z": 1}
    assert {o.key for o in store.list("a/")} == {"a/b", "a/c/d"}
    assert {o.key for o in store.list("a")} == {"a-b", "a/b", "a/c/d"}
    assert store.stat("a") is None
    with pytest.raises(StorageError, match=r"nothing"):
        store.read("nothing")


@all_stores
def test_nothing_is_overwritten(store: Store, tmp_path: Path) -> None:
    store.put_new("theirs", b"of someone else")
    store.put_new("theirs", b"of someone else")
    with pytest.raises(ObjectExistsError, match="theirs: is there already, with other content"):
        store.put_new("theirs", b"mine")
    for size in (0, 15, PART_BYTES + 1):
        mine = tmp_path / "mine"
        mine.write_bytes(content(size))
        with pytest.raises(ObjectExistsError, match="theirs"):
            store.upload_new("theirs", mine)
    assert store.read("theirs") == b"of someone else"
    assert [o.key for o in store.list()] == ["theirs"]


@all_stores
@pytest.mark.parametrize(
    "size",
    [
        0,
        PART_BYTES + 7,
        *(pytest.param(n, marks=pytest.mark.campaign) for n in (1, 2 * PART_BYTES)),
    ],
)
def test_files_come_back_as_they_were(store: Store, tmp_path: Path, size: int) -> None:
    path, record = tmp_path / "file", tmp_path / "record"
    path.write_bytes(content(size))
    sent: list[int] = []
    digest = store.upload_new("deep/er/file", path, record=record, pace=sent.append)
    assert digest == sha256(content(size)) and sum(sent) == size
    assert not record.exists()
    target = tmp_path / "new/file"
    assert download(store, "deep/er/file", target, size) == digest
    assert target.read_bytes() == content(size)
    assert same_content(store, "deep/er/file", size, digest)
    assert not same_content(store, "deep/er/file", size, sha256(b"other"))
    sent.clear()
    assert store.upload_new("deep/er/file", path, pace=sent.append) == digest
    assert sent == []  # it is there
    with pytest.raises(StorageError, match=r"new/file: File exists"):
        download(store, "deep/er/file", target, size)
    if size:
        with pytest.raises(StorageError, match=f"deep/er/file: has more than its {size - 1} bytes"):
            download(store, "deep/er/file", tmp_path / "less", size - 1)


class Killed(BaseException):
    """Ends an upload where a kill would."""


def killed_after(parts: int) -> list[int]:
    """A `pace` that ends it before it sends a part after so many."""

    class Sent(list[int]):
        def __call__(self, size: int) -> None:
            if len(self) == parts:
                raise Killed
            self.append(size)

    return Sent()


@all_stores
def test_an_upload_goes_on_where_it_was_cut_off(
    store: Store, server: S3Server | None, source: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    first = killed_after(2)
    with pytest.raises(Killed):
        store.upload_new("video", source, record=record, pace=first)  # type: ignore[arg-type]
    assert store.stat("video") is None
    second: list[int] = []
    digest = store.upload_new("video", source, record=record, pace=second.append)
    assert second == [12345] and digest == sha256(source.read_bytes())
    assert same_content(store, "video", source.stat().st_size, digest)
    assert_nothing_is_left(store, server, record)


@pytest.mark.parametrize("server", CAMPAIGN, indirect=True)
def test_a_file_that_changed_in_between_is_sent_anew(
    store: Store, server: S3Server | None, source: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    with pytest.raises(Killed):
        store.upload_new("video", source, record=record, pace=killed_after(1))  # type: ignore[arg-type]
    changed = content(PART_BYTES + 5, seed=2)
    source.write_bytes(changed)
    assert store.upload_new("video", source, record=record) == sha256(changed)
    assert store.read("video") == changed
    assert_nothing_is_left(store, server, record)


@pytest.mark.parametrize("server", CAMPAIGN, indirect=True)
def test_a_file_that_changes_meanwhile_is_no_object(
    store: Store, source: Path, tmp_path: Path
) -> None:
    def touch(size: int) -> None:
        os.utime(source, ns=(5, 5))

    for size in (10, PART_BYTES + 10):
        source.write_bytes(content(size))
        with pytest.raises(StorageError, match=r"video.avi: was changed while it was uploaded"):
            store.upload_new("video", source, record=tmp_path / "record", pace=touch)
        assert store.stat("video") is None


@all_stores
def test_a_record_that_is_damaged_or_of_another_object_begins_anew(
    store: Store, source: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    record.write_bytes(b"{")
    store.upload_new("one", source, record=record)
    UploadRecord("s3://other/one", "no-such-id", 5, 5, 5).write(record)
    store.upload_new("two", source, record=record)
    UploadRecord(f"{store.url}/three", "no-such-id", 5, 5, 5).write(record)
    digest = store.upload_new("three", source, record=record)
    assert all(same_content(store, key, source.stat().st_size, digest) for key in ("one", "two"))


@s3_stores
def test_parts_of_a_killed_worker_are_used(
    store: Store, server: S3Server, source: Path, tmp_path: Path, url: str
) -> None:
    """Of an upload that no record on disk tells of; another one of that key stays."""
    client, at = server.client(), {"Bucket": "fleet", "Key": f"{url[11:]}/video"}
    for parts in ((content(PART_BYTES, 5),), (source.read_bytes()[:PART_BYTES], b"theirs")):
        upload = {**at, "UploadId": client.create_multipart_upload(**at)["UploadId"]}
        for number, data in enumerate(parts, 1):
            client.upload_part(**upload, PartNumber=number, Body=data)
    theirs = server.unfinished(url)
    with pytest.raises(Killed):
        store.upload_new("video", source, pace=killed_after(2))  # type: ignore[arg-type]
    with pytest.raises(Killed):
        store.upload_new("video", source, pace=killed_after(0))  # type: ignore[arg-type]
    assert len(server.unfinished(url)) == len(theirs) + 1
    sent: list[int] = []
    digest = store.upload_new("video", source, pace=sent.append)
    assert sent == [12345] and same_content(store, "video", source.stat().st_size, digest)
    assert server.unfinished(url) == theirs
    for upload_id in theirs:
        client.abort_multipart_upload(**at, UploadId=upload_id)


@pytest.mark.parametrize("server", CAMPAIGN[1:], indirect=True)
def test_two_workers_may_share_an_upload(
    store: Store, server: S3Server, source: Path, url: str
) -> None:
    """Dask gives a job to a second worker while the first is only out of its sight."""
    digests, sizes = [], []

    def second(size: int) -> None:
        sizes.append(size)
        if len(sizes) == 2:
            digests.append(store.upload_new("video", source))

    digests.append(store.upload_new("video", source, pace=second))
    assert digests == [sha256(source.read_bytes())] * 2
    assert same_content(store, "video", source.stat().st_size, digests[0])
    assert server.unfinished(url) == {}


@s3_stores
def test_a_download_goes_on_where_the_link_broke(
    server: S3Server, url: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(url).upload_new("video", source)
    link = Link(server.environment["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", link.address)
    data, breaks = b"", 0
    for chunk in open_store(url).chunks("video"):
        data += chunk
        if breaks < 3 and len(data) > breaks << 22:
            breaks += 1
            link.cut()
    assert data == source.read_bytes() and breaks == 3
    chunks = open_store(url).chunks("video")
    next(chunks)
    link.close()
    with pytest.raises(StoreUnreachableError, match="video: the server cannot be reached"):
        list(chunks)


def assert_nothing_is_left(store: Store, server: S3Server | None, record: Path) -> None:
    assert not record.exists()
    if server is not None:
        assert server.unfinished(store.url) == {}
    else:
        folder = Path(store.url.removeprefix("file://").replace("%20", " "))
        assert [path.name for path in folder.rglob("*")] == ["video"]


@pytest.mark.conformance  # moto does not look at the digests
def test_what_arrives_is_checked_by_the_server(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    """As a link that damages bytes would have it: the digest is of other bytes."""
    use(seaweedfs, monkeypatch, tmp_path)
    store = open_store("s3://fleet/checked")
    monkeypatch.setattr("recorder.fleet.store.s3._sha256", lambda data: "A" * 43 + "=")
    with pytest.raises(StorageError):
        store.put_new("x", b"x")
    assert store.stat("x") is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://", "is no store"),
        ("file:/x", "is no store"),
        ("ftp://host/x", "is no store"),
        ("file://host/x", "is no store"),
        ("s3://bucket/a/../b", "can be no key"),
        ("s3://key:secret@bucket/x", "credentials come from the environment"),
        ("s3://bucket/x?versionId=1", "needs a plain"),
    ],
)
def test_urls_that_are_no_stores(url: str, message: str) -> None:
    with pytest.raises((UsageError, StorageError), match=message) as error:
        open_store(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/./b", "a\0b", "a/"])
def test_keys_lead_nowhere_else(tmp_path: Path, key: str) -> None:
    store = open_store(f"file://{tmp_path}/store")
    with pytest.raises(StorageError, match="can be no key"):
        store.put_new(key, b"")


def test_files_of_credentials_are_for_their_owner_only(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(moto, monkeypatch, tmp_path)
    path = tmp_path / "credentials"
    path.write_text(
        f"[default]\naws_access_key_id = {moto.environment['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {moto.environment['AWS_SECRET_ACCESS_KEY']}\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    path.chmod(0o640)
    with pytest.raises(UsageError, match=f"{path}: others can read it; run `chmod 600"):
        open_store("s3://fleet", credentials=path)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    with pytest.raises(UsageError, match="others can read it"):
        open_store("s3://fleet")
    path.chmod(0o600)
    open_store("s3://fleet/by-file", credentials=path).put_new("x", b"y")
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path))  # which may have keys, too
    monkeypatch.setenv("HOME", str(tmp_path))
    open_store("s3://fleet")
    path.chmod(0o604)
    with pytest.raises(UsageError, match="others can read it"):
        open_store("s3://fleet")
    path.write_text("[default]\nregion = us-east-1\n")
    open_store("s3://fleet")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        open_store("s3://fleet", credentials=tmp_path / "missing")


def test_each_thing_that_goes_wrong_has_its_message(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(url: str = "s3://fleet/x") -> str:
        with pytest.raises((StoreRefusedError, StoreUnreachableError)) as error:
            open_store(url).put_new("key", b"data")
        with pytest.raises((StoreRefusedError, StoreUnreachableError)) as looked:
            open_store(url).stat("key")  # by a HEAD, whose reply has no reason
        said = str(error.value)
        assert looked.type is error.type
        assert said.partition("key: ")[2][:25] in str(looked.value)
        return said

    use(moto, monkeypatch, tmp_path)
    monkeypatch.setattr(time, "sleep", lambda _: None)  # of botocore, between its attempts
    assert refused("s3://no-such-bucket/x") == (
        "s3://no-such-bucket: there is no such bucket (NoSuchBucket)"
    )
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert refused().startswith("s3://fleet/x/key: the secret key is wrong")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
    assert refused().startswith("s3://fleet/x/key: the server does not know the access key")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "there are no credentials; set AWS_ACCESS_KEY_ID" in refused()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "s3://fleet/x" in refused() and "the server cannot be reached" in refused()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no address")
    with pytest.raises(UsageError, match="no address"):
        open_store("s3://fleet")


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = open_store(f"file://{tmp_path}/file/below")
    with pytest.raises(StorageError, match="Not a directory"):
        store.put_new("x", b"")
    assert store.stat("x") is None and list(store.list()) == []


def test_what_is_unfinished_in_a_folder_is_no_object(tmp_path: Path, source: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    with pytest.raises(Killed):
        store.upload_new("a/video", source, record=tmp_path / "r", pace=killed_after(1))  # type: ignore[arg-type]
    assert list(store.list()) == []
    assert len(list((tmp_path / "store/a").iterdir())) == 1
