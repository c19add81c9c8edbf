"""Everything that is published is durable before it has its name, and so is the name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drivers.sim.annotate import annotate
from recorder.archives.finalize import ArchiveRequest, collect, finalize
from recorder.archives.ncore import SequenceWriter
from recorder.archives.ncore.format.sequence import StoreKind
from recorder.bus.control.keys import make_keys
from recorder.bus.control.server import ControlServer
from recorder.common.files import PosixDisk
from recorder.fleet.catalog.catalog import update_catalog
from recorder.fleet.fetching import download_session
from recorder.fleet.store import open_store
from recorder.fleet.uploading import upload_session
from recorder.formats.vrs.writer import rewrite_vrs
from recorder.integrity.vehicle_key import VehicleKey, make_key
from recorder.recording.clip.writing import write_clip
from recorder.recording.postprocessing.retention import keep
from recorder.recording.root_lock import RootLock
from recorder.recording.sessions.desired_state import DesiredStateFile
from recorder.recording.sessions.state_machine import DesiredState
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.checksums import write_checksums
from recorder.session.event_clips import KeptEvent, write_events, write_unstored
from recorder.session.layout import ROOT_PRIVATE, SessionPlan
from recorder.session.part import WHOLE
from recorder.viewers.report import write_report
from recorder.viewers.report.report_index import write_index
from tests.archives.edgefirst.rig import FULL_CALIBRATION
from tests.archives.ncore import build
from tests.archives.ncore.packer_rig import rig
from tests.drivers.world.test_annotate import make_session
from tests.faults.numbers import message, stream
from tests.manual_clock import ManualClock
from tests.rights import Rights
from tests.session.build import START_NS, Builder, camera_spec
from tests.sync_order import SyncOrder


def write_file(root: Path) -> Iterator[None]:
    yield
    for data in (b"old", b"newer"):
        PosixDisk().write_file(root / "a.json", data)


def rename(root: Path) -> Iterator[None]:
    yield
    disk = PosixDisk()
    for folder in ("a", "b", "a/c"):
        disk.make_folder(root / folder)
    disk.write_file(root / "a/c/file", b"x")
    disk.rename(root / "a/c", root / "b/d")


def desired_state(root: Path) -> Iterator[None]:
    yield
    file = DesiredStateFile(root / "run/.recorder")
    for part in (1, 2):
        file.write(DesiredState(wanted=True, part=part))


def daemon_root(root: Path) -> Iterator[None]:
    yield
    held = RootLock(root / "far/away")
    held.take()
    held.release()
    PosixDisk().write_file(root / "far/away/file", b"x")


def kept(root: Path) -> Iterator[None]:
    (root / "s/_recorder").mkdir(parents=True)
    yield
    for release in (False, True, False):
        assert keep(root / "s", release=release)


def checksums(root: Path) -> Iterator[None]:
    builder = Builder(root / "s")
    builder.add(camera_spec(), 0.2)
    builder.close()
    yield
    write_checksums(root / "s")


def recording(root: Path) -> SessionWriter:
    """A session with two samples that are committed, and one beyond them."""
    clock = ManualClock(5_000_000_000)
    plan = SessionPlan(
        str(root), "s", True, "version: 1\n", calibration_text="sensors: {}\n",
        record_format=["a"],
    )  # fmt: skip
    writer = SessionWriter.create(PosixDisk(), plan, clock)
    writer.declare(stream("a"))
    for number in range(3):
        clock.advance(0.1)
        item = message(stream("a"), [number], clock.monotonic_ns())
        item.epoch, item.number, item.seq = 7, number, number
        writer.append(item)
        if number < 2:
            writer.commit()
    return writer


def session(root: Path) -> Iterator[None]:
    yield
    recording(root / "far/away").close("clean")


def recovered(root: Path) -> Iterator[None]:
    yield  # what recovery finds, a writer made
    recording(root).abandon()
    with (root / "s/a/ts").open("ab") as file:
        file.write(b"half")
    recover(root / "s", PosixDisk(), ManualClock(9_000_000_000), boot="another boot")
    assert list((root / "s/_recorder/salvage").iterdir())


def edgefirst(root: Path, **options: str) -> Iterator[None]:
    for name in ("one", "two"):
        builder = rig(root / name, 0.5)
        (builder.path / "calibration.yaml").write_text(FULL_CALIBRATION)
        builder.close()
    yield
    for name in ("one", "two"):
        list(collect([root / name], [ArchiveRequest("edgefirst", options)], root / "data"))


def edgefirst_folder(root: Path) -> Iterator[None]:
    return edgefirst(root, container="folder")


def ncore_added(root: Path) -> Iterator[None]:
    builder = Builder(root / "drive")
    builder.add(camera_spec(), 0.5)
    builder.close()
    yield
    (result,) = finalize(builder.path, [ArchiveRequest("ncore")])
    stores: tuple[StoreKind, ...] = ("itar", "folder")
    for store in stores:
        with SequenceWriter.extend(result.files[-1], store=store) as later:
            later.cuboids(store, group=store).add(build.CUBOIDS[:0])
            writer = later.camera_labels(build.CLASSES, f"{store}@camera", group=store)
            writer.label(START_NS + 100_000_000, build.jpeg(1))
    list(finalize(builder.path, [ArchiveRequest("ncore")]))


def vrs_copied(root: Path) -> Iterator[None]:
    recording(root).close("clean")
    yield
    rewrite_vrs(root / "s/session.vrs", root / "copy.vrs", PosixDisk())
    PosixDisk().rename(root / "copy.vrs", root / "whole.vrs")


def drive(root: Path) -> Path:
    """A closed session."""
    builder = Builder(root / "drive")
    builder.add(camera_spec(), 0.5)
    return builder.close()


def clip(root: Path) -> Iterator[None]:
    made = drive(root)
    yield
    write_clip([made], WHOLE, root / "clips", "clip")


def kept_events(root: Path) -> Iterator[None]:
    made = drive(root)
    PosixDisk().make_folder(root / ROOT_PRIVATE)
    yield
    event = KeptEvent("hit", "a", None, START_NS, START_NS, START_NS + 1, "kept", ("drive",))
    write_unstored(PosixDisk(), root, event)
    write_events(PosixDisk(), made, [event])


def catalog(root: Path) -> Iterator[None]:
    drive(root)
    yield
    for _ in range(2):
        update_catalog(root)


def vehicle_key(root: Path) -> Iterator[None]:
    yield
    with VehicleKey(make_key(root / "keys")).register.lock_entries():
        pass


def uploaded(root: Path) -> Iterator[None]:
    made = drive(root)
    yield
    upload_session(made, open_store((root / "far/store").as_uri()))


def downloaded(root: Path) -> Iterator[None]:
    store = open_store((root / "store").as_uri())
    upload_session(drive(root), store)
    yield
    download_session(store, "drive", root / "here")


def reported(root: Path) -> Iterator[None]:
    made = drive(root)
    yield
    for _ in range(2):
        write_report(made)
        write_index(root)


PUBLISHERS = (
    reported,
    clip,
    kept_events,
    catalog,
    downloaded,
    write_file,
    rename,
    desired_state,
    daemon_root,
    kept,
    checksums,
    session,
    recovered,
    edgefirst,
    edgefirst_folder,
    ncore_added,
    vrs_copied,
)


FOR_OTHERS = (vehicle_key, uploaded)  # the public key; a store has the rights of its owner


@pytest.mark.parametrize("publish", PUBLISHERS + FOR_OTHERS, ids=lambda p: p.__name__)
def test_published_is_durable(
    publish: Callable[[Path], Iterator[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watched is what a publisher does behind its `yield`; before that it prepares."""
    steps = publish(tmp_path)
    next(steps)
    order = SyncOrder(tmp_path, monkeypatch)
    assert next(steps, None) is None
    order.check()


@pytest.mark.parametrize("publish", PUBLISHERS, ids=lambda p: p.__name__)
def test_nobody_else_may_read_what_is_published(
    publish: Callable[[Path], Iterator[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while it is made, and whatever the user's umask is."""
    steps = publish(tmp_path)
    next(steps)
    with Rights(tmp_path, monkeypatch) as rights:
        assert next(steps, None) is None
    rights.check()


def test_nobody_else_may_read_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_session(tmp_path / "s")
    with Rights(tmp_path, monkeypatch) as rights:
        annotate(path)
    rights.check()


def test_nobody_else_may_use_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is its users' from the moment on at which it is bound; so are its keys."""
    with Rights(tmp_path, monkeypatch) as rights:
        server = ControlServer(tmp_path / "run/c.sock", lambda call: None, lambda: "idle")
        make_keys(tmp_path / "keys")
    rights.check()
    server.close()


@pytest.mark.parametrize("at_first", [0o777, 0o664, 0o666])
def test_rights_that_are_taken_back_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_first: int
) -> None:
    """The watch itself."""
    with Rights(tmp_path, monkeypatch) as rights:
        os.close(os.open(tmp_path / "a", os.O_CREAT | os.O_WRONLY, at_first))
        (tmp_path / "a").chmod(0o640)
    with pytest.raises(AssertionError, match=f"a: was {at_first:04o} before it became 0640"):
        rights.check()
    rights.taken.clear()
    (tmp_path / "a").chmod(at_first)
    with pytest.raises(AssertionError, match="a: -rw"):
        rights.check()


def test_labels_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksums list them."""
    path = make_session(tmp_path / "s")
    order = SyncOrder(tmp_path, monkeypatch)
    annotate(path)
    order.check()
    assert {p.suffix for p in order.renamed} >= {".jsonl", ".npz", ".json", ".png"}


def test_what_checksums_list_is_durable_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it: btrfs may keep the list and lose the name of a file that it lists."""
    made = drive(tmp_path)
    order = SyncOrder(tmp_path, monkeypatch)
    for folder in ("_masks", "_masks/cam"):
        (made / folder).mkdir()
    (made / "_masks/cam/.part").write_text("theirs")
    (made / "_masks/cam/.part").rename(made / "_masks/cam/theirs.png")
    order.faults.clear()  # theirs
    listed = write_checksums(made).read_text()
    assert "_masks/cam/theirs.png" in listed
    order.check()
    assert order.is_synced(made / "_masks/cam/theirs.png")


def test_what_is_not_synced_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch itself: a file, a part of a folder, a change behind the sync, and a name."""
    order = SyncOrder(tmp_path, monkeypatch)
    (tmp_path / "a").write_text("a")
    (tmp_path / "a").rename(tmp_path / "b")
    (fault,) = order.faults
    assert fault.startswith("a: never synced before a became")
    with pytest.raises(AssertionError, match="a: never synced"):
        order.check(entries=False)
    order.faults.clear()
    disk = PosixDisk()
    disk.write_file(tmp_path / "c", b"c")
    with (tmp_path / "c").open("a") as file:
        file.write("more")
    (tmp_path / "c").rename(tmp_path / "d")
    (fault,) = order.faults
    assert fault.startswith("c: changed since its sync")
    order.faults.clear()
    with pytest.raises(AssertionError, match="d: its folder was not synced"):
        order.check()
    disk.sync_folder(tmp_path)
    order.check()
    disk.make_folder(tmp_path / "e")
    disk.make_folder(tmp_path / "e/f")
    (tmp_path / "e/f/g").write_text("g")
    disk.rename(tmp_path / "e", tmp_path / "h")
    assert sorted(fault.partition(":")[0] for fault in order.faults) == ["e/f", "e/f/g"]
    assert json.dumps(sorted(p.name for p in order.renamed)) == '["b", "c", "d", "h"]'
