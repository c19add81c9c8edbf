"""Video over a real runner, link and writer: every part of a recording begins with a keyframe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit import session_seam
from drivers.kit.driver import Sample, SensorConfig
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.recording.writer import open_sessions
from recorder.session.layout import SessionPlan
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.drivers.kit.test_runner import FakeDriver, Rig, make_rig
from tests.h264 import GROUP, SIZE, encode

__all__ = ["make_rig"]

MS = 1_000_000
LONG_NS = 10**15  # whatever the clock does on a busy machine
SPEC = StreamSpec(
    "fake", (ChannelSpec("video.h264", "h264", "u1", (SIZE[1], SIZE[0], 3)),), 100.0, finite=True
)


def picture(unit: bytes, t_ns: int) -> Sample:
    return Sample("fake", np.array([t_ns], np.int64), {"video.h264": [unit]})


class Video(FakeDriver):
    """Plays an endless script, whose items may be made when they are due."""

    def open(self) -> Sequence[StreamSpec]:
        super().open()
        return [SPEC]


@dataclass
class Parts:
    """A recording that is split while it is played.

    Args:
        units: the access units in order, 10 ms from one to the next.
        seams: numbers of the first pictures behind each seam.
    """

    rig: Rig
    units: list[bytes]
    seams: list[int]
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def script(self) -> Iterator[Any]:
        seam_at = 0  # the time of the picture that the last seam is before
        number_at = 0
        for number, unit in enumerate(self.units):
            if number + 5 in self.seams:  # from here on, stamps are those about the seam
                start_ns = self.rig.service_start(self.rig.root / "s")
                link, known = self.rig.runner._link, threading.Event()
                played_ns = start_ns + seam_at + 10 * MS * (number - number_at)
                while self.rig.clock.monotonic_ns() < played_ns + 100 * MS:
                    known.wait(0.002)
                self.asked.release()
                while (following := link.seam.next) is None:
                    known.wait(0.002)
                seam_ns = following.begin_ns
                seam_at, number_at = seam_ns - start_ns, number + 5
            yield picture(unit, seam_at + 10 * MS * (number - number_at))

    def record(self) -> list[Path]:
        rig, parts = self.rig, list[Path]()
        driver = Video(SensorConfig("fake", "script", "", {}, "max", False))
        driver.script = self.script()

        def supervise() -> None:
            parts.append(rig.start())
            for number in range(len(self.seams)):
                assert self.asked.acquire(timeout=20)
                plan = SessionPlan(str(rig.root), f"s{number}", False, "")
                rig.ask(op="split", session=str(parts[-1]), plan=plan.to_wire(), live=["fake"])
                parts.append(rig.root / f"s{number}")
            rig.until("ended")
            rig.stop()

        rig.run(driver, supervise)
        return parts


def content(path: Path) -> tuple[list[bytes], dict[str, int]]:
    """Access units, losses by cause; the session must be sound."""
    report = validate(path, deep=True)
    assert report.sound, [problem.message for problem in report.problems]
    with Session(path) as session:
        stream = session.streams["fake"]
        channel = stream.channels["video.h264"]
        lost: dict[str, int] = {}
        for event in session.events():
            if event["type"] == "lost":
                lost[event["cause"]] = lost.get(event["cause"], 0) + (event["count"] or 0)
        return [channel.encoded(k) for k in range(len(stream))], lost


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_seam, "KEYFRAME_PATIENCE_NS", LONG_NS)
    monkeypatch.setattr(open_sessions, "_SEAM_GRACE_NS", LONG_NS)


def test_parts_begin_with_keyframes_and_nothing_is_lost(make_rig: Callable[..., Rig]) -> None:
    units = encode(60)[2:]
    # Pictures 2 to 4 are before the first keyframe.  The seams are before pictures 22 and 47.
    parts = Parts(make_rig(), units, [20, 45]).record()
    assert (
        [content(path) for path in parts]
        == [
            (units[3:23], {}),  # up to keyframe 25
            (units[23:48], {}),  # up to keyframe 50
            (units[48:], {}),
        ]
    )
    assert units[48] == encode(60)[10 * GROUP]


def test_a_seam_before_a_keyframe_is_where_the_part_begins(make_rig: Callable[..., Rig]) -> None:
    units = encode(20)
    parts = Parts(make_rig(), units, [10]).record()
    assert [content(path) for path in parts] == [(units[:10], {}), (units[10:], {})]


def test_without_a_keyframe_a_part_begins_with_a_counted_loss(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keyframe that is 0.8 s behind the seam, where 0.3 s are waited for."""
    monkeypatch.setattr(session_seam.KeyframeGate, "patience_ns", 300 * MS)
    units = encode(140, x264="keyint=120:min-keyint=120:scenecut=0:log-level=none")
    parts = Parts(make_rig(), units, [40]).record()
    assert [content(path) for path in parts] == [
        (units[:70], {}),
        (units[120:], {"corrupt": 50}),
    ]
