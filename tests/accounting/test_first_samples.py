"""A driver of two streams that dies when only one of them has given anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.bus.wire import Kind, Message
from recorder.common.files import PosixDisk
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import SessionPlan
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.faults.numbers import message, stream
from tests.manual_clock import ManualClock

FAST, SLOW = stream("rig", 100.0, ("raw",)), stream("rig_slow", 10.0, ("raw",))


class Rig:
    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(5_000_000_000)
        plan = SessionPlan(str(root), "s", True, "v: 1\n", record_format=["rig", "rig_slow"])
        self.writer = SessionWriter.create(PosixDisk(), plan, self.clock)
        for spec in (FAST, SLOW):
            self.writer.declare(spec, "rig")
        self.numbers: dict[tuple[str, int], int] = {}

    def say(self, name: str, epoch: int, kind: Kind = Kind.DATA) -> None:
        number = self.numbers.get((name, epoch), 0)
        self.numbers[name, epoch] = number + 1
        if kind is Kind.DATA:
            item = message(FAST if name == "rig" else SLOW, [number], self.clock.monotonic_ns())
        else:
            item = Message(kind, stream=name, values={"reason": "stopped"}, count=0)
        item.epoch, item.number, item.seq = epoch, number, number
        self.writer.append(item)

    def run(self, epoch: int, names: tuple[str, ...], samples: int, end: bool) -> None:
        for _ in range(samples):
            self.clock.advance(0.1)
            for name in names:
                self.say(name, epoch)
        if end:
            for name in ("rig", "rig_slow"):
                self.say(name, epoch, Kind.END)


@pytest.mark.parametrize("ended", [False, True], ids=["died", "ended"])
def test_what_the_other_stream_lost_is_an_interval(tmp_path: Path, ended: bool) -> None:
    rig = Rig(tmp_path)
    rig.run(101, ("rig",), 5, end=ended)
    rig.writer.commit()
    rig.run(202, ("rig", "rig_slow"), 5, end=True)
    rig.writer.close("clean")
    report = validate(rig.writer.path, deep=True)
    assert report.sound, report.problems
    with Session(rig.writer.path) as session:
        lost = [e for e in session.events() if e["type"] == "lost"]
        epochs = {name: s.epochs or () for name, s in session.streams.items()}
    assert [e["epoch"] for e in epochs["rig_slow"]] == [101, 202]
    if ended:
        assert lost == []
        return
    assert {e["stream"]: e["epoch"] for e in lost} == {"rig": 101, "rig_slow": 101}
    (interval,) = [e for e in lost if e["stream"] == "rig_slow"]
    assert (interval["count"], interval["cause"]) == (None, "driver")
    assert interval["duration_ns"] == 600_000_000 and interval["estimate"] == 5
