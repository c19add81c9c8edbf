"""A clip away from its sources: what it carries proves that its samples are those of a session."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from recorder.cli import main
from recorder.codecs.storage.avi import AviWriter
from recorder.common.clock import SystemClock
from recorder.common.errors import FormatError
from recorder.common.files import PosixDisk
from recorder.integrity.clips import check_clip
from recorder.integrity.deferred_compression import repack
from recorder.integrity.origin_proof import OriginProof, group_samples, select_groups
from recorder.integrity.proof import Proof, Trust
from recorder.integrity.vehicle_key import make_key
from recorder.integrity.verify import verify
from recorder.recording.clip.writing import write_clip
from recorder.recording.writer.recovery import recover
from recorder.session.journal.digests import Leaf
from recorder.session.part import WHOLE, Moment, Part
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.campaigns import Selector
from tests.integrity.vehicle import Vehicle
from tests.session.build import Builder, imu_spec, sweeps_spec, video_camera_spec
from tests.session.simulated import simulated_session
from tests.support.changes import flip

PLACE = re.compile(r": samples \d+ to \d+ are not proven to be of drive.*, from 20\d\d-.* on")


def part(begin: float | None, end: float | None) -> Part:
    moments = [None if t is None else Moment.parse(f"{t:g}") for t in (begin, end)]
    return Part(moments[0], moments[1])


@dataclass
class Rig:
    """Sessions that the writer wrote and signed; a new folder for what is cut from them."""

    key: Path
    drive: Path
    video: Path
    sweeps: Path

    @property
    def trust(self) -> Trust:
        return Trust([str(self.key.with_suffix(".pub"))])

    def cut(self, out: Path, interval: Part, *sources: Path) -> Path:
        """A clip in a folder of its own; one of the drive is copied that was made before."""
        if sources:
            return write_clip(sources, interval, out, "clip").session
        made = self.drive.parent / f"clips/{str(interval) or 'whole'}"
        if not made.exists():
            write_clip([self.drive], interval, made, "clip")
        return shutil.copytree(made / "clip", out / "clip")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    folder = tmp_path_factory.mktemp("rig")
    key = make_key(folder / "keys")
    simulated_session(folder / "simulated", 6.0)
    builder = Builder(folder / "encoded")
    builder.add(video_camera_spec(), count=60)  # 20 Hz, a keyframe every 0.25 s
    builder.add(imu_spec(), 3.0)
    builder.close()
    builder = Builder(folder / "sweeps")
    builder.add(sweeps_spec(), count=40)  # 10 Hz
    builder.close()
    made = [
        write_clip([folder / name], WHOLE, folder / "sources" / name, "drive", signing_key=key)
        for name in ("simulated", "encoded", "sweeps")
    ]
    return Rig(key, *(clip.session for clip in made))


def check(clip: Path, trust: Trust) -> Proof:
    """The proofs alone, without the clip's own digests: a forger makes those anew."""
    proof = Proof(clip, "clip")
    check_clip(proof, trust, lambda _: None)
    return proof


def edit(clip: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what a clip states about itself."""
    path = clip / "_recorder/session.json"
    values = json.loads(path.read_text())
    change(values["origin"])
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    "interval", [(2.35, 4.42), (0.15, 0.5), (1.15, 1.22), (4.9, None), (None, None)]
)
def test_a_clip_of_four_sensors_is_proven_by_itself(
    rig: Rig, tmp_path: Path, interval: tuple[float | None, float | None],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    clip = rig.cut(tmp_path, part(*interval))
    assert validate(clip, deep=True).problems == []
    assert main(["verify", str(clip), "--public-key", str(rig.key.with_suffix(".pub"))]) == 0
    told = capsys.readouterr().out
    assert "proven    every sample of 4 streams is of drive, signed by the trusted key" in told
    sizes = {path: path.stat().st_size for path in clip.rglob("*") if path.is_file()}
    added = sizes[clip / "_recorder/origin-1.proof"]
    print(f"{interval}: {added} bytes prove a clip of {sum(sizes.values()) - added}")
    data = sum(path.stat().st_size for path in rig.drive.rglob("*") if path.is_file())
    if interval == (None, None):  # all leaves, and the headers of the AVI file
        assert added < 0.1 * data
    else:  # two commits of about a second at most are more than the clip
        assert added < data * 2.2 / 6 + 100_000


def test_a_clip_of_h264_is_proven_by_itself(rig: Rig, tmp_path: Path) -> None:
    clip = rig.cut(tmp_path, part(1.3, 1.9), rig.video)
    proof = verify(clip, rig.trust)
    assert proof.faults == []
    assert proof.sound and "every sample of 2 streams is of drive" in proof.proven[-1]
    table = OriginProof.read(clip / "_recorder/origin-1.proof")
    copied = {table.files[piece[0]] for pieces in table.pieces.values() for piece in pieces}
    assert {"camera/video.h264", "camera/video.h264_i"} <= copied


@pytest.mark.parametrize("interval", [(1.3, 1.9), (0.15, 0.5), (None, None)])
def test_a_clip_of_points_is_proven_by_itself(
    rig: Rig, tmp_path: Path, interval: tuple[float | None, float | None]
) -> None:
    clip = rig.cut(tmp_path, part(*interval), rig.sweeps)
    proof = verify(clip, rig.trust)
    assert proof.faults == []
    assert proof.sound and "every sample of 1 streams is of drive" in proof.proven[-1]
    assert validate(clip, deep=True).problems == []
    table = OriginProof.read(clip / "_recorder/origin-1.proof")
    copied = {table.files[piece[0]] for pieces in table.pieces.values() for piece in pieces}
    assert {"lidar/points.bin", "lidar/points_i"} <= copied
    path = clip / "lidar/points.bin"
    flip(path, path.stat().st_size // 2, 4)
    assert _faults_of(clip, rig.trust)


def test_a_changed_byte_is_found_with_its_place(rig: Rig, tmp_path: Path, select: Selector) -> None:
    """A forger has made the clip's own digests anew."""
    clip, rng = rig.cut(tmp_path, part(2.35, 4.42)), random.Random(5)
    table = OriginProof.read(clip / "_recorder/origin-1.proof")
    data = {p: p.read_bytes() for p in clip.glob("[a-z]*/*") if p.suffix != ".json"}
    used: dict[str, list[tuple[int, int]]] = {}  # what pieces take of each file
    for pieces in table.pieces.values():
        for number, at, size, *_ in pieces:
            used.setdefault(table.files[number], []).append((at, size))
    for path, before in select(data.items(), 7):
        name = path.relative_to(clip).as_posix()
        if not used.get(name):
            continue
        at, size = rng.choice(used[name])
        flip(path, at + rng.randrange(size), 1 << rng.randrange(8))
        found = _faults_of(clip, rig.trust)
        assert found and all(str(clip / name.partition("/")[0]) in fault for fault in found), name
        if path.name not in ("ts", "t_mono") and not path.name.endswith("_i"):
            assert PLACE.search(found[0]), found
        path.write_bytes(before)
    assert check(clip, rig.trust).sound


def _faults_of(clip: Path, trust: Trust) -> list[str]:
    """What is found, also where a reader refuses the clip's own index."""
    try:
        return check(clip, trust).faults
    except FormatError as error:
        return [str(error)]


def test_a_changed_proof_is_found(rig: Rig, tmp_path: Path, select: Selector) -> None:
    clip, rng = rig.cut(tmp_path, part(2.35, 4.42)), random.Random(7)
    path = clip / "_recorder/origin-1.proof"
    whole = path.read_bytes()
    table, literals = OriginProof.read(path), len(whole) - 8 - int.from_bytes(whole[-8:], "little")
    places = [rng.randrange(literals) for _ in range(10)]
    places += [rng.randrange(literals, len(whole)) for _ in range(60)]
    for at in select(places, 10):
        flip(path, at, 1 << rng.randrange(8))
        found = check(clip, rig.trust)
        if at < literals:
            assert PLACE.search(found.faults[0]), (at, found.faults)
        elif found.sound:  # the number of leaves, of which the proof needs the shape alone
            other = OriginProof.read(path)
            assert (other.rows, other.nodes) == (table.rows, table.nodes), at
            assert other.streams == table.streams, at
        path.write_bytes(whole)
    flip(path, 20)
    assert str(path) in verify(clip, rig.trust).faults[0]  # by the clip's own digests
    path.unlink()
    found = check(clip, rig.trust)
    assert len(found.faults) == 4 and all(PLACE.search(fault) for fault in found.faults)
    assert not verify(clip, rig.trust).sound


def test_a_proof_of_the_true_bytes_does_not_prove_others(rig: Rig, tmp_path: Path) -> None:
    """The proof has the session's bytes for itself; the clip has another picture."""
    clip = rig.cut(tmp_path, part(2.35, 4.42))
    path = clip / "_recorder/origin-1.proof"
    table, blob = OriginProof.read(path), path.read_bytes()
    size = int.from_bytes(blob[-8:], "little")
    literals = bytearray(blob[: -8 - size])
    own = table.files.index("_recorder/origin-1.proof")
    for number, pieces in table.pieces.items():
        name, leaf = table.rows[number]
        if name in ("camera/video.avi", "radar/iq") and leaf.start:
            with (rig.drive / name).open("rb") as file:
                file.seek(leaf.start)
                pieces[:] = [[own, len(literals), leaf.end - leaf.start]]
                literals += file.read(leaf.end - leaf.start)
    path.write_bytes(bytes(literals) + table.encode())
    assert check(clip, rig.trust).sound
    with Session(clip) as session:
        camera = session.streams["camera"].channels["video.avi"]
        frame = camera.encoded(7)
    at = (clip / "camera/video.avi").read_bytes().index(frame)
    flip(clip / "camera/video.avi", at + len(frame) // 2)
    flip(clip / "radar/iq", 5)
    camera_fault, radar_fault = check(clip, rig.trust).faults
    assert "are not proven to be of drive: sample 7 differs" in camera_fault
    assert "are not proven to be of drive: sample 0 differs" in radar_fault


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda table: table.streams.pop("imu"), "imu: no stamp of sample 0 of drive"),
        (lambda table: _move(table, "camera", theirs=1), "camera: lacks the samples before sample"),
        (lambda table: _move(table, "radar", 1, 1, -1), "radar: lacks the samples before sample"),
        (
            lambda table: _move(table, "lidar", count=-1),
            "lidar: lacks the samples from sample",
        ),
        (lambda table: _move(table, "imu", theirs=5000), "imu: no stamp of sample"),
        (lambda table: _shift_edges(table), "camera: no stamp of sample"),
        (lambda table: table.pieces.popitem(), "its proof cannot be read"),
        (lambda table: table.nodes.pop(), "a tree's proof lacks nodes"),
        (lambda table: table.nodes.append(bytes(32)), "has too many nodes"),
        (lambda table: table.rows.reverse(), "does not reach the digests that drive signed"),
        (lambda table: table.files.__setitem__(0, "../../../../etc/passwd"), "cannot be read"),
        (lambda table: table.files.__setitem__(0, "/dev/zero"), "cannot be read"),
    ],
)
def test_a_proof_that_says_something_else_is_found(
    rig: Rig, tmp_path: Path, change: Callable[[OriginProof], Any], text: str
) -> None:
    clip = rig.cut(tmp_path, part(2.35, 4.42))
    path = clip / "_recorder/origin-1.proof"
    table, blob = OriginProof.read(path), path.read_bytes()
    change(table)
    path.write_bytes(blob[: -8 - int.from_bytes(blob[-8:], "little")] + table.encode())
    found = check(clip, rig.trust).faults
    assert any(text in fault for fault in found), found


def _shift_edges(table: OriginProof) -> None:
    """Stamps beside the clip that would let it begin later."""
    for name, edges in table.edges.items():
        table.edges[name] = [replace(edge, data=bytes(len(edge.data))) for edge in edges]


def _move(table: OriginProof, name: str, first: int = 0, theirs: int = 0, count: int = 0) -> None:
    one, other, number = table.streams[name]
    table.streams[name] = one + first, other + theirs, number + count


def test_a_channel_that_was_left_out_is_found(rig: Rig, tmp_path: Path) -> None:
    clip = rig.cut(tmp_path, part(2.35, 4.42))
    meta = clip / "radar/meta.json"
    values = json.loads(meta.read_text())
    del values["valid"]
    meta.write_text(json.dumps(values))
    found = check(clip, rig.trust).faults
    assert f"{clip / 'radar'}: lacks valid, which drive has" in found


def test_parts_have_a_proof_each(rig: Rig, tmp_path: Path) -> None:
    halves = []
    for name, interval in (("drive_p001", part(None, 3.05)), ("drive_p002", part(3.05, None))):
        out = tmp_path / "parts"
        halves.append(write_clip([rig.drive], interval, out, name, signing_key=rig.key).session)
    clip = rig.cut(tmp_path / "out", part(1.55, 4.5), *halves)
    proof = verify(clip, rig.trust)
    assert proof.sound
    assert "every sample of 4 streams is of drive_p001, drive_p002, signed" in proof.proven[-1]
    assert {p.name for p in clip.glob("_recorder/*.proof")} == {"origin-1.proof", "origin-2.proof"}
    (clip / "_recorder/origin-2.proof").unlink()
    assert any("not proven to be of drive_p002" in fault for fault in check(clip, rig.trust).faults)


def test_a_session_that_is_named_twice_is_found(rig: Rig, tmp_path: Path) -> None:
    """Else samples between two cuts of it could be left out."""
    clip = rig.cut(tmp_path, part(2.35, 4.42))
    edit(clip, lambda origin: origin["sessions"].extend(origin["sessions"]))
    assert check(clip, rig.trust).faults == [f"{clip}: names the session drive twice"]


def test_a_session_that_was_recovered(tmp_path: Path) -> None:
    vehicle = Vehicle.make(tmp_path)
    writer, _ = vehicle.begin("drive")
    writer.abandon()
    with (writer.path / "imu/acc").open("ab") as file:
        file.write(b"torn")
    recover(writer.path, PosixDisk(), SystemClock())
    clip = write_clip([writer.path], part(0.5, None), tmp_path / "out", "clip").session
    proof = verify(clip, Trust([vehicle.public]))
    assert proof.sound, proof.faults
    assert "every sample of 3 streams is of drive" in proof.proven[-1]


def test_videos_of_several_segments(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their frames are not side by side: heads and indices lie between them."""
    create: Any = AviWriter.create
    monkeypatch.setattr(AviWriter, "create", lambda *values: create(*values, 20_000))
    source = write_clip([rig.drive], WHOLE, tmp_path / "new", "drive", signing_key=rig.key).session
    assert (source / "camera/video.avi").read_bytes().count(b"AVIX") > 2
    clip = rig.cut(tmp_path, part(2.35, 4.42), source)
    proof = verify(clip, rig.trust)
    assert proof.faults == []
    assert proof.sound and "every sample of 4 streams is of drive" in proof.proven[-1]


@pytest.mark.parametrize(
    ("interval", "packed"),
    [
        ((None, None), ""), ((None, None), "both"), ((0.5, 2.0), "source"), ((0.5, 2.0), "both"),
        ((1.0, None), "clip"),
    ],
)  # fmt: skip
def test_channels_that_are_packed_later(
    tmp_path: Path, interval: tuple[float | None, float | None], packed: str
) -> None:
    """Also ``lzma``, of which samples at the edges are compressed again, and `raw`."""
    vehicle = Vehicle.make(tmp_path)
    session = vehicle.record("drive")
    if packed in ("source", "both"):
        repack(session)
    clip = write_clip([session], part(*interval), tmp_path / "out", "clip").session
    if packed in ("clip", "both"):
        repack(clip)
    proof = verify(clip, Trust([vehicle.public]))
    assert proof.sound, proof.faults
    assert "every sample of 3 streams is of drive, signed by the trusted key" in proof.proven[-1]


def test_sessions_without_signatures_are_not_proven(tmp_path: Path) -> None:
    session = Vehicle(tmp_path / "plain", None).record("drive")
    clip = write_clip([session], part(1.0, None), tmp_path / "out", "clip").session
    assert not list(clip.glob("_recorder/*.proof"))
    proof = verify(clip, Trust())
    assert proof.sound and not any("every sample" in line for line in proof.proven)


def test_a_clip_without_a_proof_needs_its_sources(rig: Rig, tmp_path: Path) -> None:
    clip = rig.cut(tmp_path, part(2.35, 4.42))
    edit(clip, lambda origin: origin["sessions"][0].pop("proof"))
    text = "is not signed, and not all sessions that it was cut from are here"
    assert check(clip, rig.trust).faults == [f"{clip}: {text}; --sources names their folder"]
    assert check(clip, Trust()).sound


def test_samples_of_a_writer_that_resumed_are_those_that_stayed() -> None:
    def rows(*ranges: tuple[str, int, int]) -> list[Any]:
        return [(f"imu/{name}", Leaf(start, end, b"")) for name, start, end in ranges]

    cut = rows(
        ("a", 0, 4), ("ts", 0, 32), ("a", 4, 8), ("ts", 32, 64), ("a", 8, 9),
        ("a", 4, 7), ("ts", 32, 56), ("a", 7, 9), ("ts", 56, 72),
    )  # fmt: skip
    groups = group_samples(cut, "imu")
    assert [(g.start, g.stop, g.files["imu/a"]) for g in groups] == [
        (0, 4, [0]), (4, 7, [5]), (7, 9, [7]),
    ]  # fmt: skip
    assert [g.start for g in select_groups(groups, 5, 8)] == [4, 7]
    with pytest.raises(FormatError, match="no digests of sample 9"):
        select_groups(groups, 5, 10)
    with pytest.raises(FormatError, match="no digests of sample 1"):
        select_groups(group_samples(cut[2:], "imu"), 1, 5)


def test_a_proof_reads_only_what_is_around_the_clip(rig: Rig, tmp_path: Path) -> None:
    sizes = {p: p.stat().st_size for p in rig.drive.rglob("*") if p.is_file()}
    names = {"ts", "t_mono", "t_dev", "seq", "valid"}
    small = [
        size
        for path, size in sizes.items()
        if path.name in names or path.name.endswith("_i") or path.parent.name == "_recorder"
    ]
    before = _read_bytes()
    clip = rig.cut(tmp_path, part(1.2, 3.9), rig.drive)
    made = sum(path.stat().st_size for path in clip.glob("*/*") if path.is_file())
    # Once the source, with what the proof holds, and once the clip, for its checksums.
    assert _read_bytes() - before < 2.1 * made + 8 * sum(small)


def _read_bytes() -> int:
    """Bytes that this process has read so far, from the page cache or not."""
    return int(Path("/proc/self/io").read_text().split()[1])
