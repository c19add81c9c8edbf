"""A clip states its interval, its streams and its sources: that it is whole is part of its proof.

Each case is verified with the sources here, and by the proofs that the clip carries.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recorder.integrity.proof import Proof, Trust
from recorder.integrity.verify import verify
from recorder.recording.clip import writing
from recorder.recording.clip.writing import write_clip
from recorder.session.part import WHOLE, Moment, Part
from recorder.session.session_part import SessionPart
from tests.integrity.forging import rewrite
from tests.integrity.vehicle import Vehicle


def second(value: float, text: str = "") -> Moment:
    """A moment on the calendar: seconds after the start of the first session of a `Vehicle`."""
    return Moment(text or f"{value:g}", 1_717_236_060_000_000_000 + int(value * 1e9), True)


def cut(vehicle: Vehicle, sources: Sequence[SessionPart | Path], part: Part = WHOLE) -> Path:
    """A clip named ``clip`` beside its sources; parts are cut as they are, as a forger does."""
    if all(isinstance(source, Path) for source in sources):
        return write_clip([*map(Path, sources)], part, vehicle.root, "clip").session  # type: ignore[arg-type]
    opened = [s for s in sources if isinstance(s, SessionPart)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "open_sources", lambda *_: opened)
        return write_clip([s.path for s in opened], part, vehicle.root, "clip").session


def judge(vehicle: Vehicle, clip: Path) -> list[Proof]:
    """Verify a clip with the vehicle's key: with its sources, and by itself."""
    apart = vehicle.root.parent / "apart/clip"
    shutil.copytree(clip, apart)
    trust = Trust([vehicle.public])
    proofs = [verify(apart, trust, sources) for sources in ([vehicle.root], [])]
    shutil.rmtree(apart)
    return proofs


def test_a_clip_over_seams_is_proven(vehicle: Vehicle) -> None:
    parts = vehicle.record_parts("drive_p001", "drive_p002", "drive_p003")
    text = "no sample is left out from 2024-06-01 10:01:01.000 UTC until 2024-06-01 10:03:02.000"
    for proof in judge(vehicle, cut(vehicle, parts, Part(second(1.0), second(122.0)))):
        assert proof.faults == []
        assert proof.proven[-2].startswith(text)
        assert not any("does not continue" in line for line in proof.unproven)


def test_a_hole_at_a_seam_is_found(vehicle: Vehicle) -> None:
    one, other = vehicle.record_parts("drive_p001", "drive_p002")
    parts = [
        SessionPart(one, Part(None, second(1.5)), lead_in=True),
        SessionPart(other, Part(second(61.5), None), lead_in=True),
    ]
    clip, end_ns = cut(vehicle, parts), parts[1].whole.end_ns
    for proof in judge(vehicle, stated(clip, from_ns=None, until_ns=None, end_ns=end_ns)):
        lost = [fault for fault in proof.faults if "lacks the samples from sample 2 of" in fault]
        assert lost, proof.faults
        assert lost[0].endswith("it states that it is whole from the beginning to the end")


def test_another_session_for_the_next_part_is_found(vehicle: Vehicle) -> None:
    """It has the same name, but another first record."""
    parts = vehicle.record_parts("drive_p001", "drive_p002")
    shutil.rmtree(parts[1])
    other = vehicle.record("drive_p002", 2)
    for proof in judge(vehicle, cut(vehicle, [parts[0], other])):
        (fault,) = proof.faults
        assert "is continued by drive_p002, which is left out" in fault


def test_a_part_without_a_sample_is_named(vehicle: Vehicle) -> None:
    names = ("drive_p001", "drive_p002", "drive_p003")
    clip = cut(vehicle, vehicle.record_parts(*names, empty="drive_p002"))
    origin = json.loads((clip / "_recorder/session.json").read_text())["origin"]
    assert [each["name"] for each in origin["sessions"]] == [*names]
    assert [proof.faults for proof in judge(vehicle, clip)] == [[], []]


def test_sessions_that_are_no_parts_of_one_recording(vehicle: Vehicle) -> None:
    """Nobody states that nothing was recorded between them: that is not proven."""
    clip = cut(vehicle, [vehicle.record("a"), vehicle.record("b", 2)])
    text = "b does not continue a: what was recorded between them is not in the clip"
    for proof in judge(vehicle, clip):
        assert proof.faults == [] and text in proof.unproven


def stated(clip: Path, **changes: Any) -> Path:
    """The clip with another statement about itself, and all of its digests made anew."""
    path = clip / "_recorder/session.json"
    values = json.loads(path.read_text())
    for key, value in changes.items():
        place = values["origin"] if key in values["origin"] else values
        place[key] = value(place[key]) if callable(value) else value
    path.write_text(json.dumps(values))
    rewrite(clip)
    return clip


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Vehicle, Path]:
    """A vehicle, and a clip of its session."""
    vehicle = Vehicle.make(tmp_path_factory.mktemp("vehicle"))
    return vehicle, cut(vehicle, [vehicle.record("drive")], Part(second(1.0), second(2.2)))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"from_ns": None}, "begins or ends at another time than the interval"),
        ({"from_ns": None, "start_ns": lambda t: t - 10**9}, "its clock is not that of drive"),
        (
            {"from_ns": lambda t: t - 7 * 10**8, "start_ns": lambda t: t - 7 * 10**8,
             "start_mono_ns": lambda t: t - 7 * 10**8},
            "lacks the samples before sample 1",
        ),
        (
            {"until_ns": lambda t: t + 7 * 10**8, "end_ns": lambda t: t + 6 * 10**8},
            "lacks the samples from sample 3",
        ),
        (
            {"from_ns": lambda t: t + 7 * 10**8, "start_ns": lambda t: t + 7 * 10**8,
             "start_mono_ns": lambda t: t + 7 * 10**8},
            "from outside of it",
        ),
        (
            {"until_ns": lambda t: t - 7 * 10**8, "end_ns": lambda t: t - 7 * 10**8},
            "from outside of it",
        ),
        ({"end_ns": lambda t: t + 1}, "begins or ends at another time"),
        ({"start_ns": lambda t: t + 10**9, "end_ns": lambda t: t + 10**9}, "times are shifted"),
        ({"streams": ["imu"]}, "has other streams than it states: camera, scan"),
        ({"lead_in": {"imu": 2}}, None),
    ],
)  # fmt: skip
def test_a_clip_that_states_another_interval_is_found(
    drive: tuple[Vehicle, Path], tmp_path: Path, changes: dict[str, Any], text: str | None
) -> None:
    vehicle, made = drive
    clip = stated(Path(shutil.copytree(made, tmp_path / "clip")), **changes)
    for proof in judge(vehicle, clip):
        assert any(text in fault for fault in proof.faults) if text else not proof.faults


def test_streams_that_were_not_chosen_are_named(vehicle: Vehicle) -> None:
    clip = cut(vehicle, [vehicle.record("drive")], Part(streams=("camera", "imu")))
    for proof in judge(vehicle, clip):
        assert proof.faults == []
        assert proof.proven[-2].endswith("of the streams camera, imu; others are not in it")
    for proof in judge(vehicle, stated(clip, streams=None)):
        (fault,) = proof.faults
        assert fault.endswith("clip: lacks the streams scan of drive, and states that it has all")


def test_a_stream_that_has_no_sample_in_the_interval(vehicle: Vehicle) -> None:
    """Of a clip of two sources, one of which has the stream only outside of the interval."""
    one, other = vehicle.record_parts("drive_p001", "drive_p002")
    clip = cut(vehicle, [one, other], Part(second(2.8), second(60.8)))
    assert [proof.faults for proof in judge(vehicle, clip)] == [[], []]
