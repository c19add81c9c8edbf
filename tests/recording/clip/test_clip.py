"""Clips of whole sessions: samples, numbers, losses, states, and what is refused."""

from __future__ import annotations

import json
import lzma
import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.base import available
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.cli import main
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import RecorderError, SessionError, StorageError, UsageError
from recorder.common.files import PosixDisk
from recorder.recording.clip import writing
from recorder.recording.clip.writing import write_clip
from recorder.session import layout
from recorder.session.event_clips import KeptEvent, State, read_index, write_events
from recorder.session.part import WHOLE
from recorder.session.reader import Session
from tests.acceptance.command import contents
from tests.recording.clip.cuts import part, samples, sound
from tests.session.build import (
    START_NS,
    Builder,
    camera_spec,
    full_session,
    imu_spec,
    rewrite_header,
)
from tests.session.simulated import simulated_session


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_session(tmp_path_factory.mktemp("drive") / "drive", 2.0).path


@pytest.mark.parametrize(("begin", "end"), [(0.55, 1.3), (None, 0.4), (1.0, None), (0.2, 0.3)])
def test_a_clip_has_the_very_samples_of_its_interval(
    drive: Path, tmp_path: Path, begin: float | None, end: float | None
) -> None:
    before = contents(drive)
    clip = write_clip([drive], part(begin, end), tmp_path)
    sound(clip.session)
    begin_ns = None if begin is None else START_NS + round(begin * 1e9)
    end_ns = None if end is None else START_NS + round(end * 1e9)
    with Session(clip.session) as session, Session(drive) as source:
        assert sorted(session.streams) == ["camera", "imu", "lidar", "radar"]
        assert session.state == "clean"
        assert session.start_ns == (source.start_ns if begin_ns is None else begin_ns)
        assert session.end_ns == (source.end_ns if end_ns is None else end_ns)
        for name, stream in session.streams.items():
            assert stream.meta == source.streams[name].meta
            assert clip.samples[name] == len(stream)
    for name in clip.samples:
        assert samples(clip.session, name, None, None) == samples(drive, name, begin_ns, end_ns)
    for name in ("lidar/lidar.json", "radar/radar.json", "config.yaml"):
        assert (clip.session / name).read_bytes() == (drive / name).read_bytes()
    assert contents(drive) == before
    assert [path.name for path in tmp_path.iterdir()] == [clip.session.name]
    rows = (clip.session / "_recorder/checksums.csv").read_text().splitlines()
    assert f"{len(rows)}" == f"{1 + sum(p.is_file() for p in data_paths(clip.session))}"


def data_paths(session: Path) -> list[Path]:
    return [p for p in session.rglob("*") if "_recorder" not in p.parts]


def test_a_clip_says_where_it_comes_from(drive: Path, tmp_path: Path) -> None:
    clip = write_clip([drive], part(0.5, 1.0, "imu", "camera"), tmp_path, "crossing")
    assert clip.session == tmp_path / "crossing"
    origin = json.loads((clip.session / "_recorder/session.json").read_text())["origin"]
    assert origin["kind"] == "clip"
    assert (origin["from_ns"], origin["until_ns"]) == (START_NS + 5 * 10**8, START_NS + 10**9)
    assert origin["streams"] == ["imu", "camera"]
    (session,) = origin["sessions"]
    assert session["name"] == "drive"
    assert len(bytes.fromhex(session["session_digest"])) == 32
    assert sorted(clip.samples) == ["camera", "imu"]
    again = write_clip([clip.session], part(0.1, 0.2), tmp_path)
    header = json.loads((again.session / "_recorder/session.json").read_text())
    assert header["origin"]["sessions"][0]["origin"] == origin


def test_every_archive_packs_a_clip(drive: Path, tmp_path: Path) -> None:
    clip = write_clip([drive], part(0.3, 1.7), tmp_path)
    steps = [ArchiveRequest(name) for name in available()]
    assert [made.archive for made in finalize(clip.session, steps)] == available()
    assert main(["recover", str(clip.session)]) == 0
    sound(clip.session)


def test_clips_that_follow_each_other_are_merged_to_the_whole(drive: Path, tmp_path: Path) -> None:
    ends = [0.0, 0.41, 1.2, 5.0]
    clips = [write_clip([drive], part(a, b), tmp_path) for a, b in pairwise(ends)]
    merged = write_clip([clip.session for clip in reversed(clips)], WHOLE, tmp_path, "merged")
    sound(merged.session)
    for name in merged.samples:
        assert samples(merged.session, name, None, None) == samples(drive, name, None, None)
    origin = json.loads((merged.session / "_recorder/session.json").read_text())["origin"]
    assert origin["kind"] == "merge"
    assert [one["name"] for one in origin["sessions"]] == [clip.session.name for clip in clips]
    cut = write_clip([clip.session for clip in clips], part(0.3, 1.5), tmp_path, "across")
    for name in cut.samples:
        begin_ns, end_ns = START_NS + 3 * 10**8, START_NS + 15 * 10**8
        assert samples(cut.session, name, None, None) == samples(drive, name, begin_ns, end_ns)


def test_blocks_of_samples_are_copied_but_for_those_at_the_edges(tmp_path: Path) -> None:
    channel = ChannelSpec("count", "lzma", "u4", (2,), "a counter")
    builder = Builder(tmp_path / "drive")
    made = builder.add(StreamSpec("fast", (channel,), rate_hz=1000.0), seconds=0.1)
    values = made.data["count"]
    session = builder.close()
    blocks = [
        lzma.compress(values[at : at + 8].tobytes(), check=lzma.CHECK_CRC32, preset=6)
        for at in range(0, len(values), 8)
    ]
    (session / "fast/count").write_bytes(b"".join(blocks))
    clip = write_clip([session], part(0.0115, 0.0855), tmp_path)
    sound(clip.session)
    stored = (clip.session / "fast/count").read_bytes()
    inside = np.flatnonzero(
        (made.t_ns >= START_NS + 11_500_000) & (made.t_ns < START_NS + 85_500_000)
    )
    assert len(inside) == 74 and inside[0] % 8 != 0
    assert lzma.decompress(stored) == values[inside].tobytes()
    assert b"".join(blocks[inside[0] // 8 + 1 : inside[-1] // 8]) in stored


# States, events


def test_states_that_last_come_first_and_events_of_the_interval_follow(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "source", 1.0)
    log = [
        {"t_ns": START_NS + 10**7, "stream": "camera", "state": {"exposure": 1}},
        {"t_ns": START_NS + 2 * 10**8, "stream": "camera", "state": {"exposure": 2}},
        {"t_ns": START_NS + 10**8, "stream": "camera", "state": {"gain": 7}},
        {"t_ns": START_NS + 2 * 10**8, "stream": "imu", "state": {"model": "x"}},
        {"t_ns": START_NS + 6 * 10**8, "stream": "camera", "state": {"exposure": 3}},
        {"t_ns": START_NS + 9 * 10**8, "stream": "camera", "state": {"exposure": 4}},
    ]
    (builder.path / "_recorder/log.jsonl").write_text("".join(json.dumps(e) + "\n" for e in log))
    for t, text in ((0.1, "before"), (0.5, "within"), (0.95, "behind")):
        t_ns = START_NS + round(t * 1e9)
        builder.events.append(
            {"t_ns": t_ns, "type": "mark", "stream": None, "cause": text, "text": text}
            | {"first_seq": None, "last_seq": None, "count": None, "duration_ns": None}
        )
    builder.close()
    clip = write_clip([builder.path], part(0.4, 0.9), tmp_path)
    sound(clip.session)
    lines = (clip.session / "_recorder/log.jsonl").read_text().splitlines()
    states = [json.loads(line) for line in lines]
    *first, last = [(s["stream"], s["state"]) for s in states]
    assert sorted(first, key=str) == [
        ("camera", {"exposure": 2}), ("camera", {"gain": 7}), ("imu", {"model": "x"}),
    ]  # fmt: skip
    assert last == ("camera", {"exposure": 3})
    assert all(s["t_ns"] >= START_NS + 4 * 10**8 for s in states)
    with Session(clip.session) as session:
        marks = [event["text"] for event in session.events() if event["type"] == "mark"]
        ends = [event["cause"] for event in session.events() if event["type"] == "end"]
    assert marks == ["within"]
    assert ends == ["clip"]


# What is refused, and what is left behind


def test_what_cannot_be_cut_is_named(drive: Path, tmp_path: Path) -> None:
    open_ = full_session(tmp_path / "open", 0.2)
    open_.close("recording")
    plain = full_session(tmp_path / "plain", 0.2, plain=True)
    for paths, what, error, text in [
        ([drive, drive], WHOLE, UsageError, "given twice"),
        ([tmp_path / "none"], part(0, 1), SessionError, "no such session folder"),
        ([open_.path], part(0, 1), SessionError, "was not closed"),
        ([plain.path], part(0, 1), SessionError, "was not written by the recorder"),
        ([drive], part(7, 8), SessionError, "has no sample: from 7"),
        ([drive], part(0, 1, "gnss"), SessionError, "has no stream 'gnss'"),
    ]:
        with pytest.raises(error, match=text):
            write_clip(paths, what, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write_clip([drive], part(0, 1), tmp_path / "out", "taken")
    with pytest.raises(UsageError, match="taken: exists"):
        write_clip([drive], part(0, 1), tmp_path / "out", "taken")
    assert write_clip([drive], part(0, 1), tmp_path / "out").session.name == "drive_from_0_until_1"


def test_sessions_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    first = Builder(tmp_path / "first")
    first.add(camera_spec(), 0.2)
    first.close()
    stamps = np.fromfile(first.path / "camera/t_mono", "<u8")
    for name, offset_ns, spec, values, text in [
        ("meets", int(stamps[-1] - stamps[0]), camera_spec(), {}, "camera: begins 0.000 s before"),
        ("overlaps", 10**8, camera_spec(), {}, "camera: begins .* before it ends in .*: the sess"),
        ("rebooted", 10**9, camera_spec(), {"boot_id": "other"}, "another start of the machine"),
        ("other", 10**9, imu_spec("camera"), {}, "camera: has other channels or shapes"),
        ("moved", 10**9, camera_spec(), {}, "moved/calibration.yaml: is not that of"),
    ]:
        second = Builder(tmp_path / name)
        second.add(spec, 0.2, offset_ns=offset_ns)
        second.close()
        (second.path / "calibration.yaml").write_text(name)
        (first.path / "calibration.yaml").write_text(name.replace("moved", "else"))
        rewrite_header(
            second.path, start_ns=START_NS + 1, start_mono_ns=5_000_000_000_002, **values
        )
        with pytest.raises(SessionError, match=text):
            write_clip([first.path, second.path], WHOLE, tmp_path / "out")
    assert not (tmp_path / "out").exists()


class FullDisk(PosixDisk):
    left = 200_000

    def create(self, path: Path, /) -> Any:
        file = super().create(path)
        append = file.append

        def limited(data: Any) -> None:
            FullDisk.left -= len(data)
            if FullDisk.left < 0:
                raise OSError(28, os.strerror(28), str(path))
            append(data)

        file.append = limited  # type: ignore[method-assign]
        return file


def test_a_full_disk_leaves_nothing(
    drive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PosixDisk", FullDisk)
    with pytest.raises(StorageError, match="No space left on device; nothing of the clip is left"):
        write_clip([drive], part(0.1, 1.9), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_clip_is_begun_anew(
    drive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_clip([drive], part(0, 1.9), tmp_path, progress=interrupted)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as SIGKILL leaves it
    with pytest.raises(KeyboardInterrupt):
        write_clip([drive], part(0, 1.9), tmp_path, progress=interrupted)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".")
    monkeypatch.undo()
    sound(write_clip([drive], part(0, 1.9), tmp_path).session)
    assert [path.name for path in tmp_path.iterdir()] == ["drive_from_0_until_1.9"]


def test_a_damaged_sample_names_its_place(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "source", 0.5)
    path = builder.path / "lidar/rng"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(RecorderError, match="lidar/rng"):
        write_clip([builder.path], part(0, 0.45), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    path = builder.path / "camera/video.avi"
    data = bytearray(path.read_bytes())
    at = data.index(b"00dc", len(data) // 2)
    data[at : at + 4] = b"junk"
    path.write_bytes(data)
    with pytest.raises(RecorderError, match=r"camera/video.avi"):
        write_clip([builder.path], part(0, 0.45, "camera"), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_command(drive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["clip", str(drive), "--from", "0.5", "--until", "1", "--out", str(tmp_path)]
    assert main([*words, "--streams", "imu"]) == 0
    text = capsys.readouterr().out
    name = "drive_from_0.5_until_1_imu"
    assert text.startswith(f"{tmp_path / name}: 0.500 s, ")
    assert "  imu: 50 samples" in text
    assert main([*words, "--name", "x", "--format", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["session"] == str(tmp_path / "x")
    assert made["samples"]["imu"] == 50
    for wrong in (
        ["clip", str(drive)],
        ["clip", str(drive), "--from", "2", "--until", "1"],
        ["clip", str(drive), "--streams", "imu,"],
        ["clip", str(drive), "--from", "soon"],
        [*words, "--name", "a/b"],
    ):
        assert main(wrong) == 2
    assert main(["info", str(tmp_path / name)]) == 0
    assert "where it was cut" in capsys.readouterr().out


def test_a_clip_reads_little_more_than_it_has(tmp_path: Path) -> None:
    source = full_session(tmp_path / "source", 60.0).path
    indices = {"ts", "t_mono", "t_dev", "seq", "valid"}
    small = [p for p in source.glob("*/*") if p.name in indices or p.name.endswith("_i")]
    small += list((source / "_recorder").glob("*"))
    fixed = sum(path.stat().st_size for path in small if path.is_file())
    before = _read_bytes()
    clip = write_clip([source], part(30, 40), tmp_path)
    # The clip's files are read twice more: for its checksums.
    made = sum(path.stat().st_size for path in clip.session.glob("*/*") if path.is_file())
    assert _read_bytes() - before < 2.1 * made + 6 * fixed


def _read_bytes() -> int:
    """Bytes that this process has read so far, from the page cache or not."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_events_become_clips_of_their_own(
    drive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = shutil.copytree(drive, tmp_path / "drive")
    start_ns = layout.read_session_json(holder)["start_ns"]
    second = 10**9

    def event(name: str, state: State) -> KeptEvent:
        return KeptEvent(
            name, "pothole", None, start_ns + second, start_ns + second // 2,
            start_ns + second * 3 // 2, state, ("drive",),
        )  # fmt: skip

    write_events(PosixDisk(), holder, [event("hole", "kept"), event("later", "open")])
    out = tmp_path / "out"
    assert main(["clip", str(holder), "--events", "--out", str(out)]) == 0
    assert "later: is not over yet" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["hole"]
    sound(out / "hole")
    begin_ns, end_ns = start_ns + second // 2, start_ns + second * 3 // 2 + 1
    assert samples(out / "hole", "imu", None, None) == samples(drive, "imu", begin_ns, end_ns)
    origin = layout.read_session_json(out / "hole")["origin"]
    assert [(e["id"], e["text"]) for e in origin["events"]] == [
        ("hole", "pothole"),
        ("later", "pothole"),
    ]
    with Session(out / "hole") as made:
        assert [(e.id, e.state, e.parts) for e in made.kept_events()] == [
            ("hole", "kept", ("drive",)),
            ("later", "open", ("drive",)),
        ]
    assert main(["info", str(out / "hole")]) == 0
    assert "0.5 s  pothole (0.5 s before, 0.5 s after, kept)" in capsys.readouterr().out
    assert read_index(out) == [], "the event is one of the session that it was cut from"
    assert main(["clip", str(holder), "--events", "--out", str(out)]) == 0  # again: nothing to do
    assert "hole: exists" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["hole"]
    assert main(["clip", str(holder), "--events", "--name", "x"]) == 2


def test_a_clip_names_only_events_of_its_interval(drive: Path, tmp_path: Path) -> None:
    holder = shutil.copytree(drive, tmp_path / "drive")
    start_ns = layout.read_session_json(holder)["start_ns"]
    early = KeptEvent("early", "a", None, start_ns, start_ns, start_ns + 10**8, "kept", ("drive",))
    write_events(PosixDisk(), holder, [early])
    clip = write_clip([holder], part(0.5, 1.0), tmp_path / "out")
    assert layout.read_session_json(clip.session)["origin"]["events"] == []
