"""Uploads of sessions: what arrives, in which order, and what a kill or a bad link may cost."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from recorder.cli import main
from recorder.common.errors import SessionError, StorageError
from recorder.fleet.store import open_store
from recorder.fleet.store.base import PART_BYTES, ObjectExistsError, Store
from recorder.fleet.store.manifest import Manifest
from recorder.fleet.uploading import Limit, list_files, upload_session
from recorder.session.lock import hold_session
from recorder.session.outputs import is_safe_at, read_uploaded
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.campaigns import seeded
from tests.fleet.conftest import CAMPAIGN
from tests.fleet.proxy import Link
from tests.fleet.servers import S3Server
from tests.fleet.sessions import content_of, make_session

all_stores = pytest.mark.parametrize("server", CAMPAIGN, indirect=True)
LARGE = 2 * PART_BYTES + 4321


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return make_session(tmp_path / "root/drive")


def stored(store: Store) -> dict[str, bytes]:
    return {found.key: store.read(found.key) for found in store.list()}


@all_stores
def test_a_session_arrives_whole(store: Store, session: Path, tmp_path: Path) -> None:
    done = upload_session(session, store, read_back=True)
    assert done.read_back and done.changed == () and done.sent == done.bytes > 0
    here = content_of(session)
    for path in ("_recorder/lock", "_recorder/uploaded.json"):
        here.pop(path)
    there = stored(store)
    manifest = Manifest.decode(there.pop("_manifests/drive.json"), "manifest")
    assert there == {f"drive/{path}": data for path, data in here.items()}
    assert {e.path: (e.size, e.sha256) for e in manifest.files} == {
        path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in here.items()
    }
    assert manifest.about["streams"][0]["samples"] == 20
    target = tmp_path / "back"
    for key, data in there.items():
        copy = target / key
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    assert not validate(target / "drive").problems
    # sha256sum(1) agrees, as whoever has no recorder would look.
    lines = "".join(f"{e.sha256}  {e.path}\n" for e in manifest.files)
    told = subprocess.run(
        ["sha256sum", "--check", "--quiet"],
        cwd=target / "drive", input=lines, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert (told.returncode, told.stdout + told.stderr) == (0, "")


@all_stores
def test_a_second_upload_sends_nothing(store: Store, session: Path) -> None:
    upload_session(session, store)
    before = stored(store)
    done = upload_session(session, store)
    assert (done.sent, done.read_back, done.changed) == (0, False, ())
    assert upload_session(session, store, read_back=True).read_back
    assert upload_session(session, store).read_back  # it is known
    (session / "report.html").write_text("another one")
    (session / "_recorder/keep").write_text("{}")
    assert upload_session(session, store).changed == ("report.html", "_recorder/keep")
    assert stored(store) == before


def test_another_session_of_that_name_is_refused(session: Path, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    upload_session(session, store)
    before = stored(store)
    other = make_session(tmp_path / "other/drive", seed=2)
    with pytest.raises(ObjectExistsError, match="is the upload of another session of this name"):
        upload_session(other, store)
    (tmp_path / "store/_manifests/drive.json").unlink()  # as if it was cut off
    with pytest.raises(ObjectExistsError, match="is there already, with other content"):
        upload_session(other, store)
    assert read_uploaded(other) is None
    assert stored(store).items() < before.items()


def test_what_is_worth_most_goes_first_and_the_manifest_last(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (session / "_archives/ncore").mkdir()
    (session / "_archives/ncore/.drive.part").mkdir()
    (session / "_archives/ncore/.drive.part/x").write_text("being packed")
    (session / "_recorder/session.json.tmp").write_text("being written")
    (session / "outside").symlink_to("/etc/passwd")
    paths = list_files(session)
    rank = {path: number for number, path in enumerate(paths)}
    assert rank["_recorder/commits"] < rank["report.html"] < rank["imu/acc"]
    assert rank["config.yaml"] < rank["report.html"] and rank["imu/meta.json"] < rank["report.html"]
    assert rank["imu/acc"] < rank["_archives/l5kit/drive.zarr/.zgroup"] == len(paths) - 1
    assert not any("part" in path or ".tmp" in path or path == "outside" for path in paths)
    store = open_store(f"file://{tmp_path}/store")
    order: list[str] = []

    def noted(call: Any) -> Any:
        def note(key: str, *args: Any, **more: Any) -> Any:
            order.append(key)
            return call(key, *args, **more)

        return note

    for name in ("upload_new", "put_new"):
        monkeypatch.setattr(store, name, noted(getattr(store, name)))
    upload_session(session, store)
    assert order == [*(f"drive/{path}" for path in paths), "_manifests/drive.json"]


def test_what_is_not_finished_is_not_uploaded(session: Path, tmp_path: Path) -> None:
    import fcntl

    store = open_store(f"file://{tmp_path}/store")
    with (session / "_recorder/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SessionError, match="is being recorded or recovered; not uploaded"):
            upload_session(session, store)
    header = session / "_recorder/session.json"
    header.write_text(header.read_text().replace('"clean"', '"recording"'))
    with pytest.raises(SessionError, match="was not closed; run `recorder recover"):
        upload_session(session, store)
    with pytest.raises(SessionError):
        upload_session(tmp_path, store)
    assert list(store.list()) == []


@pytest.mark.parametrize("path", ["imu/meta.json", "imu/acc", "imu/seq", "_recorder/commits"])
@pytest.mark.parametrize("cut", [None, 7])
def test_a_damaged_session_is_not_uploaded(
    session: Path, tmp_path: Path, path: str, cut: int | None
) -> None:
    """A file of it is missing, or has lost its end."""
    damaged = session / path
    data = damaged.read_bytes()
    damaged.unlink()
    if cut is not None:
        damaged.write_bytes(data[:-cut])
    store = open_store(f"file://{tmp_path}/store")
    with pytest.raises(SessionError, match=r"drive: is damaged; not uploaded; `recorder validate"):
        upload_session(session, store)
    assert list(store.list()) == []
    damaged.write_bytes(data)
    assert upload_session(session, store).changed == ()


def test_what_changes_after_it_was_sent_is_named(session: Path, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    sent: list[int] = []
    total = sum((session / path).stat().st_size for path in list_files(session))

    def change(size: int) -> None:
        sent.append(size)
        if sum(sent) == total:
            (session / "report.html").write_text("<html>another one</html>")
            (session / "new").write_text("")

    assert upload_session(session, store, pace=change).changed == ("new", "report.html")
    assert store.read("drive/report.html") == b"<html></html>"


def test_another_header_is_another_session(session: Path, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    upload_session(session, store)
    header = session / "_recorder/session.json"
    header.write_text(header.read_text() + "\n")
    with pytest.raises(ObjectExistsError, match=r"changed since: _recorder/session.json differs"):
        upload_session(session, store)


def test_what_was_added_after_an_upload_is_not_safe(session: Path, tmp_path: Path) -> None:
    """Reading back proves that the store has what it had, not what is new here."""
    store = open_store(f"file://{tmp_path}/store")
    upload_session(session, store, read_back=True)
    assert is_safe_at(session, store.url)
    (session / "labels.txt").write_text("new")
    done = upload_session(session, store, read_back=True)
    assert done.read_back and done.changed == ("labels.txt",)
    assert not is_safe_at(session, store.url)


def test_a_change_between_two_attempts_says_what_to_do(session: Path, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    upload_session(session, store)
    (tmp_path / "store/_manifests/drive.json").unlink()  # as if it was cut off
    (session / "report.html").write_text("<html>another one</html>")
    with pytest.raises(ObjectExistsError) as error:
        upload_session(session, store)
    assert "report.html: is there already, with other content; it has no manifest" in str(
        error.value
    )
    assert f"upload into another prefix, or remove {store.url}/drive there" in str(error.value)


@pytest.mark.parametrize("server", CAMPAIGN[1:2], indirect=True)
def test_a_bucket_that_vanishes_is_one_message(
    server: S3Server, session: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client()
    client.create_bucket(Bucket="brief")
    store = open_store("s3://brief/v")

    def vanish(size: int) -> None:
        for found in client.list_objects_v2(Bucket="brief").get("Contents", ()):
            client.delete_object(Bucket="brief", Key=found["Key"])
        client.delete_bucket(Bucket="brief")

    with pytest.raises(StorageError, match=r"^s3://brief: there is no such bucket"):
        upload_session(session, store, pace=vanish)
    assert read_uploaded(session) is None


@pytest.mark.parametrize("server", CAMPAIGN[1:2], indirect=True)
def test_keys_are_in_no_message_session_or_store(
    server: S3Server,
    url: str,
    session: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # of botocore, between its attempts
    secrets = [server.environment[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")]

    def upload(**more: str) -> str:
        with monkeypatch.context() as patch:
            for name, value in more.items():
                patch.setenv(name, value)
            status = main(["upload", str(session), url])
        said = capsys.readouterr()
        assert (status == 1) is bool(more), said.err
        return said.out + said.err

    said = upload(AWS_SECRET_ACCESS_KEY="f" * 40) + upload(AWS_ENDPOINT_URL="http://127.0.0.1:9")
    said += upload()
    there = b"".join([*stored(open_store(url)).values(), *content_of(session).values()])
    for secret in (*secrets, "f" * 40):
        assert secret not in said and secret.encode() not in there


@all_stores
def test_an_object_that_is_not_what_was_sent_is_found(
    store: Store, session: Path, server: S3Server | None
) -> None:
    upload_session(session, store)
    (entry,) = list(store.list("drive/imu/acc"))
    bad = b"\0" * entry.size
    if server is None:
        path = Path(store.url.removeprefix("file://").replace("%20", " ")) / entry.key
        path.write_bytes(bad)
    else:
        prefix = store.url.removeprefix("s3://fleet/")
        server.client().put_object(Bucket="fleet", Key=f"{prefix}/{entry.key}", Body=bad)
    with pytest.raises(StorageError, match=r"drive/imu/acc: is missing, or is not what was sent"):
        upload_session(session, store, read_back=True)
    assert not is_safe_at(session, store.url)


def test_sessions_are_safe_only_where_they_were_read_back(session: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    assert not is_safe_at(session, url)
    upload_session(session, open_store(url))
    assert not is_safe_at(session, url)
    upload_session(session, open_store(url), read_back=True)
    assert is_safe_at(session, url) and is_safe_at(session, url + "/")
    assert not is_safe_at(session, url + "2")
    upload_session(session, open_store(url + "2"))
    assert not is_safe_at(session, url + "2")
    (session / "_recorder/uploaded.json").write_text("{")
    assert not is_safe_at(session, url)
    with Session(session) as opened, hold_session(session):
        assert opened.name == "drive" and not validate(session).problems


def test_a_rate_is_kept_on_average() -> None:
    slept: list[float] = []
    now = [100.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    limit = Limit(8.0, lambda: now[0], sleep)  # 1e6 bytes a second
    limit(500_000)
    limit(2_000_000)
    now[0] += 0.5
    limit(1)
    assert slept == pytest.approx([0.5, 1.5])
    now[0] += 100
    limit(1)
    assert len(slept) == 2  # what was not used is not saved up


COMMAND = [sys.executable, "-m", "recorder", "upload"]


def overhead(requests: int) -> int:
    """Most that the headers of so many requests take, with those that only ask."""
    return requests * 6000


@pytest.mark.parametrize("server", ["moto"], indirect=True)
@seeded(0, weight=40, least=4)
def test_kills_and_cuts_cost_at_most_a_part(
    url: str, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The uploader is killed, or its link breaks, after so many bytes; then it is run again."""
    dice = random.Random(seed)
    tmp_path, url = tmp_path / str(seed), f"{url}/{seed}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
    session = make_session(tmp_path / "root/drive", large=LARGE, seed=seed)
    link = Link(server.environment["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", link.address)
    faults = 0
    for _ in range(3):
        at = link.sent + dice.randrange(1, LARGE)
        kill = dice.random() < 0.7
        process = subprocess.Popen(
            [*COMMAND, str(session), url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

        def strike(sent: int, at: int = at, kill: bool = kill, process: Any = process) -> None:
            nonlocal faults
            if sent >= at:
                link.on_bytes = lambda _: None
                faults += 1
                if kill:
                    process.send_signal(signal.SIGKILL)
                link.cut()

        link.on_bytes = strike
        process.wait()
    link.on_bytes = lambda _: None
    done = subprocess.run(
        [*COMMAND, str(session), url, "--read-back", "--format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["uploads"][0]["read_back"] is True
    link.close()
    files = list_files(session)
    size = sum((session / path).stat().st_size for path in files)
    assert link.sent <= size + faults * PART_BYTES + overhead((faults + 4) * (len(files) + 10))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
    there = stored(open_store(url))
    without_faults = open_store(f"file://{tmp_path}/reference")
    upload_session(session, without_faults)
    assert there == stored(without_faults)
    assert server.unfinished(url) == {}
    left = {path.name for path in (session / "_recorder").iterdir()}
    assert "upload" not in left


@pytest.mark.parametrize("server", CAMPAIGN[1:2], indirect=True)
def test_a_server_that_dies_is_one_message_and_the_upload_goes_on(
    server: S3Server, url: str, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # of botocore, between its attempts
    address = server.environment["AWS_ENDPOINT_URL"]
    link = Link(address)
    monkeypatch.setenv("AWS_ENDPOINT_URL", link.address)
    sent: list[int] = []

    def dies(size: int) -> None:
        if not sent:
            link.close()
        sent.append(size)

    with pytest.raises(StorageError, match="the server cannot be reached"):
        upload_session(session, open_store(url), pace=dies)
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    store = open_store(url)
    assert upload_session(session, store).sent > 0
    assert set(stored(store)) == {
        *(f"drive/{path}" for path in list_files(session)), "_manifests/drive.json",
    }  # fmt: skip


def test_a_full_disk_under_a_store_leaves_no_manifest(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"file://{tmp_path}/store")
    real, left = os.fdatasync, [5]

    def full(fd: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        upload_session(session, store)
    assert not any(found.key.startswith("_manifests/") for found in store.list())
    monkeypatch.undo()
    upload_session(session, store, read_back=True)
    assert not list((tmp_path / "store").rglob(".unfinished-*"))


def test_a_session_that_vanishes_meanwhile_says_so(session: Path, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")

    def vanish(size: int) -> None:
        shutil.rmtree(session / "imu", ignore_errors=True)

    with pytest.raises(StorageError, match=r"imu/.*: No such file"):
        upload_session(session, store, pace=vanish)
