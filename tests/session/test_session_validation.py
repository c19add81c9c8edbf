"""Validation finds every kind of damage, says where, and never ends in a traceback."""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import SessionError
from recorder.session.validation import validate
from recorder.session.validation_report import Problem
from tests.campaigns import Selector
from tests.session.build import (
    Builder,
    camera_spec,
    frames,
    full_session,
    imu_spec,
    lidar_spec,
    radar_spec,
)
from tests.support.changes import flip


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full_session(tmp_path_factory.mktemp("root") / "rig", 0.6).path


@pytest.fixture
def session(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "rig")


def cut(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size - by)


def change(path: Path, dtype: str, index: int, value: Any) -> None:
    values = np.fromfile(path, dtype)
    values[index] = value
    values.tofile(path)


def edit_json(path: Path, edit: Callable[[Any], Any]) -> None:
    values = json.loads(path.read_text())
    edit(values)
    path.write_text(json.dumps(values))


def test_whole_sessions_are_sound(session: Path, tmp_path: Path) -> None:
    plain = full_session(tmp_path / "plain", 0.6, plain=True).path
    for path in (session, plain):
        for deep in (False, True):
            report = validate(path, deep)
            assert report.problems == [] and report.sound
            assert sum("samples" in line for line in report.checked) == 5


DAMAGES: list[tuple[str, Callable[[Path], object], str, str, int | None]] = [
    ("ts cut inside a sample", lambda p: cut(p / "imu/ts", 3), "imu", "ts", None),
    ("a channel a sample short", lambda p: cut(p / "imu/acc", 12), "imu", "acc", 59),
    ("seq a sample short", lambda p: cut(p / "radar/seq", 8), "radar", "seq", 11),
    ("a channel cut inside a sample", lambda p: cut(p / "radar/iq", 5), "radar", "iq", None),
    ("a channel is missing", lambda p: (p / "imu/rot").unlink(), "imu", "rot", None),
    ("an index is missing", lambda p: (p / "lidar/rng_i").unlink(), "lidar", "rng", None),
    ("xz data cut", lambda p: cut(p / "lidar/rng", 1), "lidar", "rng", None),
    ("xz data too long", lambda p: cut(p / "lidar/nir_i", 8), "lidar", "nir", None),
    ("xz index torn", lambda p: cut(p / "lidar/rfl_i", 1), "lidar", "rfl", None),
    ("xz index does not start at 0", lambda p: change(p / "lidar/rng_i", "<u8", 0, 1),
     "lidar", "rng", None),
    ("xz index falls", lambda p: change(p / "lidar/rng_i", "<u8", 3, 1), "lidar", "rng", None),
    ("xz index off by one", lambda p: change(p / "lidar/rng_i", "<u8", 3,
                                            np.fromfile(p / "lidar/rng_i", "<u8")[3] + 1),
     "lidar", "rng", 2),
    ("a bit of a sweep", lambda p: flip(p / "lidar/rfl", 200, 0xFF), "lidar", "rfl", 0),
    ("lzma cut", lambda p: cut(p / "radar/valid", 4), "radar", "valid", None),
    ("AVI cut", lambda p: cut(p / "camera/video.avi", 2000), "camera", "video.avi", None),
    ("AVI never finished", lambda p: avi_count(p / "camera/video.avi", 0), "camera", "video.avi",
     None),
    ("stamps fall", lambda p: change(p / "imu/ts", "<f8", 7, 1e9), "imu", "ts", 7),
    ("a stamp is no number", lambda p: change(p / "imu/ts", "<f8", 5, np.nan), "imu", "ts", 5),
    ("t_mono stands still", lambda p: change(p / "imu/t_mono", "<u8", 9,
                                            np.fromfile(p / "imu/t_mono", "<u8")[8]),
     "imu", "t_mono", 9),
    ("ts and t_mono disagree", lambda p: shift(p / "imu/ts", 1e-4), "imu", "ts", 0),
    ("a number twice", lambda p: change(p / "imu/seq", "<u8", 9, 8), "imu", "seq", 9),
    ("an unaccounted gap", lambda p: shift(p / "imu/seq", 2, 30), "imu", "seq", 30),
    ("a key too many", lambda p: edit_json(p / "imu/meta.json",
                                          lambda m: m["acc"].update(unit="m")), "imu", "acc", None),
    ("an unknown format", lambda p: edit_json(p / "imu/meta.json",
                                             lambda m: m["acc"].update(format="zip")),
     "imu", "acc", None),
    ("another shape", lambda p: edit_json(p / "lidar/meta.json",
                                         lambda m: m["rng"].update(shape=[8, 32])),
     "lidar", "rng", None),
    ("another type", lambda p: edit_json(p / "lidar/meta.json",
                                        lambda m: m["rng"].update(type="i2")),
     "lidar", "rng", None),
    ("no ts", lambda p: edit_json(p / "imu/meta.json", lambda m: m.pop("ts")), "imu", "ts", None),
    ("seq as i4", lambda p: edit_json(p / "imu/meta.json", lambda m: m["seq"].update(type="i8")),
     "imu", "seq", None),
    ("meta.json is broken", lambda p: cut(p / "imu/meta.json", 1), "imu", "meta.json", None),
    ("no intrinsics", lambda p: (p / "lidar/lidar.json").unlink(), "lidar", "lidar.json", None),
    ("intrinsics cut", lambda p: cut(p / "radar/radar.json", 1), "radar", "radar.json", None),
    ("no resolution", lambda p: edit_json(p / "radar/radar.json",
                                         lambda m: m.pop("doppler_resolution")),
     "radar", "radar.json", None),
    ("a lidar of fewer beams", lambda p: edit_json(
        p / "lidar/lidar.json", lambda m: m["beam_intrinsics"]["beam_altitude_angles"].pop()),
     "lidar", "lidar.json", None),
    ("a lidar of more beams", lambda p: edit_json(
        p / "lidar/lidar.json", lambda m: m["beam_intrinsics"]["beam_altitude_angles"].append(9)),
     "lidar", "lidar.json", None),
    ("a lidar of fewer columns", lambda p: edit_json(
        p / "lidar/lidar.json", lambda m: m["lidar_data_format"].update(columns_per_frame=63)),
     "lidar", "lidar.json", None),
    ("a lidar of more columns", lambda p: edit_json(
        p / "lidar/lidar.json", lambda m: m["lidar_data_format"].update(columns_per_frame=65)),
     "lidar", "lidar.json", None),
    ("a lidar without beams", lambda p: edit_json(
        p / "lidar/lidar.json", lambda m: m.pop("beam_intrinsics")), "lidar", "lidar.json", None),
    ("an older lidar of more beams", lambda p: edit_json(
        p / "lidar/lidar.json", lambda m: m.update(
            beam_altitude_angles=[*m.pop("beam_intrinsics")["beam_altitude_angles"], 1])),
     "lidar", "lidar.json", None),
    ("an older lidar of more columns", lambda p: edit_json(
        p / "lidar/lidar.json", lambda m: m.update(
            data_format={"columns_per_frame": m.pop("lidar_data_format")["columns_per_frame"] + 1}
        )),
     "lidar", "lidar.json", None),
    ("a resolution of 0", lambda p: edit_json(
        p / "radar/radar.json", lambda m: m.update(range_resolution=0)),
     "radar", "radar.json", None),
    ("a resolution that is true", lambda p: edit_json(
        p / "radar/radar.json", lambda m: m.update(range_resolution=True)),
     "radar", "radar.json", None),
    ("a resolution that is text", lambda p: edit_json(
        p / "radar/radar.json", lambda m: m.update(doppler_resolution="1")),
     "radar", "radar.json", None),
]  # fmt: skip


def avi_count(path: Path, count: int) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b"avih") + 8 + 16
    data[at : at + 4] = count.to_bytes(4, "little")
    path.write_bytes(data)


def shift(path: Path, by: float, start: int = 0) -> None:
    values = np.fromfile(path, "<f8" if path.name == "ts" else "<u8")
    values[start:] += np.array(by, values.dtype)
    values.tofile(path)


@pytest.mark.parametrize(
    ("damage", "stream", "channel", "sample"),
    [pytest.param(*rest, id=name) for name, *rest in DAMAGES],
)
def test_damage_is_found_where_it_is(
    session: Path,
    damage: Callable[[Path], object],
    stream: str,
    channel: str,
    sample: int | None,
) -> None:
    damage(session)
    report = validate(session)
    assert not report.sound
    found = [p for p in report.problems if (p.stream, p.channel) == (stream, channel)]
    assert found, report.problems
    assert sample is None or sample in [p.sample for p in found], found
    assert f"{session / stream / channel}" in found[0].message or "meta.json" in found[0].message
    assert {p.stream for p in report.problems} == {stream}, "the others are sound"


def test_a_jpeg_that_is_cut_is_found(tmp_path: Path) -> None:
    """OpenCV decodes it all the same, and roverd's validation passes it."""
    builder = Builder(tmp_path / "rig")
    builder.add(camera_spec(), 1.0)
    path = builder.close() / "camera" / "video.avi"
    data = path.read_bytes()
    end = data.rindex(b"\xff\xd9", 0, data.index(b"ix00"))
    path.write_bytes(data[: end - 40] + bytes(42) + data[end + 2 :])
    report = validate(builder.path, deep=True)
    assert [(p.channel, p.sample) for p in report.problems] == [("video.avi", 29)]
    assert "cut short" in report.problems[0].message


def test_only_deep_finds_what_spot_checks_pass_by(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(lidar_spec(), 10.0)
    path = builder.close() / "lidar" / "rng"
    flip(path, int(np.fromfile(path.with_name("rng_i"), "<u8")[50]) + 100, 0xFF)
    seen: list[tuple[int, int]] = []
    assert validate(builder.path).sound
    report = validate(
        builder.path, deep=True, progress=lambda done, all_: seen.append((done, all_))
    )
    assert [(p.channel, p.sample) for p in report.problems] == [("rng", 50)]
    assert seen[-1] == (500, 500) and [done for done, _ in seen] == list(range(1, 501))


def test_deep_names_the_sample_in_samples_that_are_packed_together(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(radar_spec(), 10.0)
    path = builder.close() / "radar" / "valid"
    flip(path, 40, 0xFF)
    report = validate(builder.path, deep=True)
    # The checksum comes last: the fault shows where the stream ends.
    assert [(p.channel, p.sample) for p in report.problems] == [("valid", 199)]
    seen: list[tuple[int, int]] = []
    path.write_bytes(lzma.compress(bytes(200)))
    builder.write_journal("clean")
    assert validate(builder.path, True, lambda *step: seen.append(step)).sound
    done, total = seen[-1]
    assert done == total >= 400 and len(seen) < 10


def test_many_problems_of_a_kind_are_counted(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), 10.0)
    builder.sent[11] = 1999
    path = builder.close() / "imu" / "seq"
    (np.arange(1000, dtype="<u8") * 2).tofile(path)
    report = validate(builder.path)
    gaps = [p for p in report.problems if "missing and no event" in p.message]
    assert len(gaps) == 10
    assert any(p.message.endswith("989 more of this kind") for p in report.problems)
    assert any("1000 stored + 0 counted as lost are 1000, but 1999" in p.message
               for p in report.problems)  # fmt: skip


# Losses


def accounted(tmp_path: Path, *events: tuple[int, int | None, dict[str, Any]]) -> list[Problem]:
    """IMU with 10 to 19 and 40 missing, in two epochs: 0..49 of epoch 11, then 3..9 of 12."""
    builder = Builder(tmp_path / "rig")
    seq = [*range(10), *range(20, 40), *range(41, 50), *range(3, 10)]
    builder.add(imu_spec(), seq=seq, epochs=[(11, 0), (12, 39)])
    for first, last, more in events:
        builder.lose("imu", first, last, **more)
    return validate(builder.close()).problems


def test_losses_that_are_accounted_for(tmp_path: Path) -> None:
    problems = accounted(
        tmp_path,
        (10, 14, {}),
        (15, 19, {"cause": "device"}),
        (40, 40, {}),
        (50, 59, {}),  # after the epoch's last sample
        (0, 2, {"epoch": 12}),
        (10, 11, {"epoch": 12}),
        (12, None, {"epoch": 12, "count": None}),  # nobody could count
        (0, 4, {"epoch": 13}),  # an epoch without any sample
    )
    assert problems == []


def test_events_of_one_second_are_one(tmp_path: Path) -> None:
    merged = (10, 40, {"count": 11})
    assert accounted(tmp_path, merged, (0, 2, {"epoch": 12})) == []


@pytest.mark.parametrize(
    ("events", "messages"),
    [
        ([(10, 19, {}), (40, 40, {})], ["before sample 39: numbers 0 to 2 are missing"]),
        ([(10, 18, {}), (40, 40, {}), (0, 2, {"epoch": 12})],
         ["before sample 10: numbers 10 to 19 are missing"]),
        ([(10, 19, {}), (0, 2, {"epoch": 12})], ["before sample 30: number 40 is missing"]),
        ([(10, 19, {}), (40, 40, {"count": 5}), (0, 2, {"epoch": 12})],
         ["epoch 1 of 2: 39 stored + 15 counted as lost are 54, but 50 were sent"]),
        ([(10, 19, {}), (40, 40, {}), (0, 2, {})], ["before sample 39: numbers 0 to 2"]),
    ],
)  # fmt: skip
def test_losses_that_are_not(
    tmp_path: Path, events: list[tuple[int, int | None, dict[str, Any]]], messages: list[str]
) -> None:
    problems = accounted(tmp_path, *events)
    for message in messages:
        assert any(message in p.message for p in problems), problems


def test_damaged_events(session: Path) -> None:
    (session / "_recorder" / "events.jsonl").write_text("{}\nnonsense\n")
    report = validate(session)
    assert [p.message for p in report.problems if "events.jsonl:2: not JSON" in p.message]


# The session as a whole


def test_config_and_leftovers(session: Path) -> None:
    (session / "config.yaml").unlink()
    (session / "session.json.tmp").touch()
    (session / "imu" / "magn").touch()
    (session / "imu" / "calibration.json").write_text("{}")
    report = validate(session)
    severities = [(p.severity, p.message.split(": ")[0]) for p in report.problems]
    assert severities == [
        ("error", str(session / "config.yaml")),
        ("warning", str(session / "session.json.tmp")),
        ("warning", str(session / "imu" / "magn")),
    ]
    (session / "config.yaml").write_text("a: [\n")
    assert any("is no YAML" in p.message for p in validate(session).problems)


def reopen(session: Path, state: str = "recording") -> None:
    """As it was before its first commit."""
    edit_json(session / "_recorder" / "session.json", lambda h: h.update(state=state))
    commits = session / "_recorder" / "commits"
    commits.write_bytes(b"".join(frames(commits)[:-3]))


@pytest.mark.parametrize("state", ["recording", "sealed"])
def test_an_unclosed_session_is_told_to_be_recovered(session: Path, state: str) -> None:
    reopen(session, state)
    cut(session / "lidar" / "rng", 5)
    cut(session / "imu" / "acc", 100)
    report = validate(session)
    assert [p.severity for p in report.problems] == ["error"]
    assert "run `recorder recover`" in report.problems[0].message
    assert "lidar: 5 samples" in " ".join(report.checked)


def test_a_live_session_is_sound_as_far_as_it_goes(session: Path) -> None:
    reopen(session)
    cut(session / "lidar" / "rng", 5)
    (session / "imu" / "x.tmp").touch()
    with (session / "_recorder" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = validate(session)
    assert report.sound


def test_damaged_session_json_is_a_report(session: Path) -> None:
    cut(session / "_recorder" / "session.json", 1)
    report = validate(session)
    assert [p.severity for p in report.problems] == ["error"] and report.state is None


def test_what_is_no_session_raises(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(SessionError):
            validate(path)


def test_every_file_cut_anywhere_is_found(pristine: Path, tmp_path: Path, select: Selector) -> None:
    """Every file that a stream needs, at lengths all over it."""
    target = shutil.copytree(pristine, tmp_path / "rig")
    files = [p for p in sorted(target.glob("[a-z]*/*")) if p.is_file()]
    assert len(files) > 30
    for path in select(files, 14):
        whole = path.read_bytes()
        for length in {0, len(whole) // 3, len(whole) - 1}:
            if length < len(whole):
                path.write_bytes(whole[:length])
                report = validate(target)
                where = {p.stream for p in report.problems if p.severity == "error"}
                assert where == {path.parent.name}, (path, length, report.problems)
        path.write_bytes(whole)
    assert validate(target).problems == []


@given(data=st.data())
def test_any_bytes_anywhere_make_a_report(
    pristine: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Damage of any kind gives a report (or SessionError), never another exception."""
    files = sorted(p.relative_to(pristine) for p in pristine.rglob("*") if p.is_file())
    file = data.draw(st.sampled_from(files))
    whole = (pristine / file).read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    # Where most of the structure is:
    at = at if data.draw(st.booleans()) else min(at, 400)
    length = data.draw(st.integers(0, 64))
    damaged = whole[:at] + data.draw(st.binary(max_size=64)) + whole[at + length :]
    target = tmp_path / "damaged"
    if not target.exists():
        shutil.copytree(pristine, target)
    (target / file).write_bytes(damaged)
    try:
        report = validate(target)
    finally:
        (target / file).write_bytes(whole)
    for problem in report.problems:
        assert str(target) in problem.message
