"""The process around a driver, with a made-up driver and a real writer."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit import runner as runner_module
from drivers.kit import stamps
from drivers.kit.driver import (
    Driver,
    EndOfSource,
    Item,
    Lost,
    NewStream,
    Sample,
    SensorConfig,
    State,
    incomplete,
)
from drivers.kit.runner import Runner
from recorder.bus.sockets import DriverSocket
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import DeviceError, SourceError, StreamChangedError
from recorder.common.files import PosixDisk
from recorder.recording.writer.service import WriterService
from recorder.session.layout import SessionPlan
from tests.support.waiting import PATIENCE_S, wait_until

MS = 1_000_000
SPEC = StreamSpec("fake", (ChannelSpec("x", "raw", "u4", (64,)),), rate_hz=100.0, finite=True)


class FastClock:
    """The machine's clocks, thirty times as fast."""

    def __init__(self, speed: int = 30) -> None:
        self._speed = speed
        self._zero_ns = time.monotonic_ns()

    def monotonic_ns(self) -> int:
        return self._zero_ns + (time.monotonic_ns() - self._zero_ns) * self._speed

    def realtime_ns(self) -> int:
        return 1_700_000_000_000_000_000 + self.monotonic_ns()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds / self._speed))


def batch(first: int, count: int = 1, step_ns: int = 10 * MS) -> Sample:
    """Samples `first`, `first` + 1, ...: each holds its number, and comes at 10 ms times it."""
    numbers = np.arange(first, first + count)
    values = np.repeat(numbers[:, None], 64, axis=1).astype("<u4")
    return Sample("fake", numbers * step_ns + 123_456, {"x": values})


def wide(first: int, count: int) -> Sample:
    """The same of another shape than is declared."""
    return replace(batch(first, count), data={"x": np.zeros((count, 65), "<u4")})


class FakeDriver(Driver):
    """Plays what it is given; an exception among it is raised."""

    schemes = {"script": "made up for tests"}
    script: Iterable[Item | NewStream | Exception | Callable[[], None]] = ()
    opened = closed = 0

    def open(self) -> Sequence[StreamSpec]:
        assert self.opened == self.closed, "opened twice"
        self.opened += 1
        self._items = iter(self.script)
        return [SPEC]

    def read(self) -> Item | NewStream | None:
        item = next(self._items, None)
        if item is None:
            raise EndOfSource
        if isinstance(item, Exception):
            raise item
        if not isinstance(item, (Sample, State, Lost, NewStream)):
            item()
            return None
        if isinstance(item, Sample):  # the kit takes samples over
            return Sample(item.stream, item.t_ns.copy(), dict(item.data))
        return item

    def close(self) -> None:
        self.closed += 1


class Rig:
    """A writer, a supervisor's socket, and a runner that the main thread runs."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, buffer_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="r"))
        self.root = root
        self.clock = FastClock()
        self.service = WriterService(self.folder, buffer_bytes, self.clock, PosixDisk())
        self._writer = threading.Thread(target=self.service.run)
        self._writer.start()
        self._socket = DriverSocket(self.folder)
        self._asked = itertools.count(1)
        self.sensors: dict[str, dict[str, Any]] = {}
        self.reports: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(runner_module, "report", lambda e, **v: self.reports.append((e, v)))
        self.failure: BaseException | None = None
        self.outcome: dict[str, Any] = {}

    def driver(self, *script: Any, pace: str = "max", loop: bool = False) -> FakeDriver:
        driver = FakeDriver(SensorConfig("fake", "script", "", {}, pace, loop))
        driver.script = script
        return driver

    def ask(self, **command: Any) -> dict[str, Any]:
        number = next(self._asked)
        self._socket.send(Message(Kind.COMMAND, number=number, values=command))
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self._socket.wait(0.05)
            while (message := self._socket.receive()) is not None:
                if message.number == number:
                    return message.values
        raise AssertionError(f"no answer to {command}")

    def until(self, event: str) -> None:
        wait_until(
            lambda: f"{event} in {self.reports}",
            lambda: any(name == event for name, _ in self.reports),
        )

    def start(self, duration_s: float | None = None) -> Path:
        plan = SessionPlan(str(self.root), "s", False, "", duration_s=duration_s)
        plan.sensors = self.sensors
        return Path(self.ask(op="start", plan=plan.to_wire())["session"])

    def stop(self) -> dict[str, Any]:
        reply = self.ask(op="stop", live=["fake"], grace_s=300.0)
        assert reply["closed"], reply
        streams: dict[str, Any] = reply["streams"]
        return streams

    def record(
        self,
        driver: FakeDriver,
        duration_s: float | None = None,
        during: Callable[[], object] | None = None,
    ) -> dict[str, Any]:
        """Run the driver through one session; returns its account with what is on disk."""

        def supervise() -> None:
            session = self.start(duration_s)
            (during or (lambda: self.until("ended")))()
            self.outcome = self.stop()["fake"]
            folder = session / "fake"
            if folder.is_dir():
                self.outcome["x"] = np.fromfile(folder / "x", "<u4")[::64].tolist()
                self.outcome["seq"] = np.fromfile(folder / "seq", "<u8").tolist()
                t_mono = np.fromfile(folder / "t_mono", "<u8").astype(np.int64)
                start = self.service_start(session)
                self.outcome["t"] = ((t_mono - start) / MS).tolist()

        self.run(driver, supervise)
        assert driver.opened == driver.closed
        return self.outcome

    def run(self, driver: FakeDriver, supervise: Callable[[], object]) -> None:
        """Run the driver until `supervise`, which begins when it is armed, returns."""
        runner = self.runner = Runner(driver, self.folder, self.clock)

        def supervised() -> None:
            try:
                self.until("armed")
                supervise()
            except BaseException as error:  # noqa: BLE001  the main thread raises it on
                self.failure = error
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # as a supervisor ends a driver

        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until the runner has its own handler
        thread = threading.Thread(target=supervised)
        thread.start()
        try:
            assert runner.run() == 0
        finally:
            thread.join()
            if self.failure is not None:
                raise self.failure

    @staticmethod
    def service_start(session: Path) -> int:
        import json

        values = json.loads((session / "_recorder" / "session.json").read_bytes())
        return int(values["start_mono_ns"])

    def close(self) -> None:
        self.service.quit()
        self._writer.join()
        self._socket.close()
        shutil.rmtree(self.folder)


@pytest.fixture
def make_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rig]]:
    before = signal.getsignal(signal.SIGTERM)
    rigs: list[Rig] = []

    def make(buffer_bytes: int = 1_000_000) -> Rig:
        rigs.append(Rig(tmp_path / str(len(rigs)), monkeypatch, buffer_bytes))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()
    signal.signal(signal.SIGTERM, before)


def test_a_source_is_played_to_its_end(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    state, loss = State("fake", 60 * MS, {"ok": 1}), Lost("fake", 61 * MS, "device", 3)
    account = rig.record(rig.driver(batch(0, 5), state, loss, batch(5), batch(6, 4)))
    assert account["x"] == list(range(10))
    assert account["seq"] == [0, 1, 2, 3, 4, 8, 9, 10, 11, 12]
    assert account["t"] == [10.0 * n for n in range(10)]
    assert (account["lost"], account["ended"]) == ({"device": 3}, "eof")


@pytest.mark.parametrize("pace", ["max", "realtime"])
def test_the_duration_cuts_exactly_even_within_a_batch(
    make_rig: Callable[..., Rig], pace: str
) -> None:
    """Samples before 0.33 s belong to the session; the one at 0.33 s does not."""
    rig = make_rig()
    script = [batch(first, 8) for first in range(0, 80, 8)]
    account = rig.record(rig.driver(*script, pace=pace), duration_s=0.33)
    assert account["x"] == list(range(33))
    assert (account["ended"], account["lost"]) == ("duration", {})


def test_a_duration_may_end_between_two_batches(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    account = rig.record(rig.driver(*[batch(n, 8) for n in range(0, 80, 8)]), duration_s=0.32)
    assert account["x"] == list(range(32))


class LivePair(FakeDriver):
    """A device with two streams that gives a batch of each, from the same time, and then more."""

    live_schemes = frozenset({"script"})
    begin_ns: int | None = None

    def open(self) -> Sequence[StreamSpec]:
        super().open()
        self._batches = [("fake", 0), ("fake_b", 0), ("fake", 40), ("fake_b", 40)]
        return [SPEC, replace(SPEC, name="fake_b")]

    def read(self) -> Item | None:
        if self.begin_ns is None or not self._batches:
            time.sleep(0.001)
            return None
        stream, first = self._batches.pop(0)
        sample = replace(batch(first, 40), stream=stream)
        sample.t_ns += self.begin_ns
        return sample


def test_batches_of_a_device_are_cut_at_the_end_in_all_its_streams(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "_LATEST_NS", 10**15)  # however slow this machine is
    monkeypatch.setattr(stamps, "_BEHIND_NS", 10**15)
    rig = make_rig()
    driver = LivePair(SensorConfig("fake", "script", "", {}, "realtime", False))

    def during() -> None:
        assert rig.runner._link.wait_for_session(PATIENCE_S) is not None
        driver.begin_ns = rig.service_start(rig.root / "s") + 300 * MS
        rig.until("ended")

    account = rig.record(driver, duration_s=0.33, during=during)
    assert account["x"] == [0, 1, 2]
    assert (account["ended"], account["lost"]) == ("duration", {})
    assert np.fromfile(rig.root / "s" / "fake_b" / "x", "<u4")[::64].tolist() == [0, 1, 2]


class LatchedPair(LivePair):
    """A device whose last sample holds until another comes."""

    def open(self) -> Sequence[StreamSpec]:
        specs = super().open()
        self._batches = []
        return specs

    def repeat(self, t_ns: int) -> Sequence[Sample]:
        return [replace(batch(7), t_ns=np.array([t_ns], np.int64))]


def test_samples_that_hold_are_recorded_at_the_start_of_every_session(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    driver = LatchedPair(SensorConfig("fake", "script", "", {}, "realtime", False))
    found: list[tuple[list[int], int]] = []

    def record() -> None:
        session = rig.start()
        key = f"/{rig.service_start(session)}"
        wait_until("it is recorded", lambda: rig.runner._reported.endswith(key))
        rig.stop()
        values = np.fromfile(session / "fake" / "x", "<u4")[::64].tolist()
        t_mono = int(np.fromfile(session / "fake" / "t_mono", "<u8")[0])
        found.append((values, t_mono - rig.service_start(session)))

    def supervise() -> None:
        record()
        record()

    rig.run(driver, supervise)
    assert found == [([7], 0), ([7], 0)]


def test_a_loop_goes_on_without_a_seam(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    driver = rig.driver(batch(0, 5), batch(5, 2), loop=True)
    account = rig.record(driver, duration_s=0.2)
    assert account["x"] == [n % 7 for n in range(20)]
    assert account["t"] == [10.0 * n for n in range(20)]
    assert account["seq"] == list(range(20))
    assert driver.opened == 4  # what lies behind the end had to be read


def test_a_loop_over_nothing_ends(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    account = rig.record(rig.driver(loop=True))
    assert (account["ended"], account["samples"]) == ("eof", 0)


@pytest.mark.parametrize("pace", ["max", "realtime"])
def test_a_stream_that_a_source_finds_is_recorded(make_rig: Callable[..., Rig], pace: str) -> None:
    rig = make_rig()
    found = NewStream(replace(SPEC, name="fake_2"))
    late = [replace(batch(n), stream="fake_2") for n in (2, 3)]
    rig.record(rig.driver(batch(0, 2), found, *late, batch(2, 2), pace=pace))
    (session,) = rig.root.iterdir()
    assert np.fromfile(session / "fake_2" / "x", "<u4")[::64].tolist() == [2, 3]
    assert rig.outcome["x"] == [0, 1, 2, 3]
    given = [values["given"] for event, values in rig.reports if event == "stats"][-1]
    assert {name: counts[0] for name, counts in given.items()} == {"fake": 4, "fake_2": 2}


def test_a_loop_finds_the_same_streams_again(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    late = replace(batch(0, 2), stream="fake_2")
    driver = rig.driver(NewStream(replace(SPEC, name="fake_2")), late, batch(2), loop=True)
    rig.record(driver, duration_s=0.2)
    (session,) = rig.root.iterdir()
    assert len(np.fromfile(session / "fake_2" / "ts", "<f8")) > 4


def test_a_stream_that_is_found_again_in_another_form_ends_the_source(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    other = StreamSpec("fake", (ChannelSpec("x", "raw", "u4", (65,)),))
    account = rig.record(rig.driver(batch(0, 2), NewStream(other), batch(2)))
    assert account["x"] == [0, 1] and account["ended"] == "fault"
    faults = [values["message"] for event, values in rig.reports if event == "fault"]
    assert faults == ["fake: is declared again with other channels"]


def test_full_pace_waits_for_room_instead_of_refusing(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(buffer_bytes=8_000)  # two batches
    account = rig.record(rig.driver(*[batch(n, 10) for n in range(0, 300, 10)]))
    assert account["x"] == list(range(300))
    assert account["lost"] == {}


def test_a_batch_larger_than_the_ring_goes_in_parts(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(buffer_bytes=3_000)  # eleven samples
    account = rig.record(rig.driver(*[batch(n, 75) for n in range(0, 300, 75)]))
    assert account["x"] == list(range(300)) and account["lost"] == {}


def test_in_real_time_a_full_ring_refuses_the_newest_and_counts(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk stalls while 100 samples come; what fits the ring is kept, the rest counted."""
    rig = make_rig(buffer_bytes=8_000)
    gate = threading.Event()
    gate.set()
    real_sync = os.fdatasync

    def sync(fd: int) -> None:
        assert gate.wait(PATIENCE_S)
        real_sync(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    script: list[Any] = [gate.clear]
    for n in range(0, 100, 10):  # each batch lacks something
        part = batch(n, 10)
        script += [part, State("fake", int(part.t_ns[-1]), incomplete("network", 3, 10))]
    account = rig.record(rig.driver(*script, gate.set, batch(100, 10), pace="realtime"))
    stored = sum(x < 100 for x in account["x"])
    assert account["incomplete"] == {"network": {"samples": stored, "parts": stored * 3 // 10}}
    refused = account["lost"]["refused"]
    assert 0 < refused < 100
    assert account["samples"] + refused == 110
    assert account["seq"] == account["x"], "the numbers of the refused are gaps"
    assert account["x"][:20] == list(range(20))


@pytest.mark.parametrize(
    "error",
    [SourceError("broken at 3"), DeviceError("went away"), StreamChangedError("other from here")],
)
def test_a_driver_that_fails_in_mid_session_ends_its_stream_with_the_reason(
    make_rig: Callable[..., Rig], error: Exception
) -> None:
    rig = make_rig()
    account = rig.record(rig.driver(batch(0, 3), error, batch(3, 3)))
    assert account["x"] == [0, 1, 2]
    assert (account["ended"], account["lost"]) == ("fault", {})
    assert account["unknown_losses"] == 1  # what the source had after the fault
    faults = [values for name, values in rig.reports if name == "fault"]
    assert [f["message"] for f in faults] == [str(error)]


@pytest.mark.parametrize("pace", ["max", "realtime"])
def test_samples_of_another_shape_are_counted_with_one_clear_fault(
    make_rig: Callable[..., Rig], pace: str
) -> None:
    """The stream's files cannot hold them; what fits is stored, before and afterwards."""
    rig = make_rig()

    # The state of a sample that is not stored counts nothing.
    holes = State("fake", int(wide(8, 1).t_ns[-1]), incomplete("network", 5))
    script = batch(0, 3), wide(3, 2), batch(5, 3), wide(8, 1), holes
    account = rig.record(rig.driver(*script, pace=pace))
    assert (account["x"], account["ended"]) == ([0, 1, 2, 5, 6, 7], "changed")
    assert (account["lost"], account["unknown_losses"]) == ({"changed": 3}, 0)
    assert account["incomplete"] == {}
    assert account["seq"] == account["x"], "the numbers of the lost are gaps"
    faults = [values for name, values in rig.reports if name == "fault"]
    assert len(faults) == 1 and "fake/x" in faults[0]["message"]
    assert faults[0]["exit_code"] == 3


def test_the_end_of_the_session_ends_the_counting_of_samples_that_do_not_fit(
    make_rig: Callable[..., Rig],
) -> None:
    """What comes after the duration was not asked for, so it is not lost."""
    rig = make_rig()
    rest = (wide(n, 1) for n in range(3, 50))
    account = rig.record(rig.driver(batch(0, 3), *rest, pace="realtime"), duration_s=0.1)
    assert (account["x"], account["lost"]) == ([0, 1, 2], {"changed": 7})
    assert account["ended"] == "changed"


def test_stopping_the_session_ends_a_source_that_would_go_on(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    reached = threading.Event()
    script = [batch(0, 10), reached.set, *[batch(n) for n in range(10, 5000)]]
    account = rig.record(
        rig.driver(*script, pace="realtime"), during=lambda: reached.wait(PATIENCE_S)
    )
    assert account["ended"] == "stopped"
    assert 10 <= account["samples"] < 4000
    assert account["x"] == list(range(account["samples"]))
    assert account["lost"] == {}


def test_sigterm_hands_over_what_is_held_and_ends_the_stream(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    given: list[int] = []

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def note(n: int) -> Callable[[], None]:
        return lambda: given.append(n)

    script: list[Any] = []
    for n in range(50):
        script += [batch(n), note(n)]
    script += [terminate, *[batch(n) for n in range(50, 5000)]]
    account = rig.record(rig.driver(*script, pace="realtime"))
    assert given == list(range(50))
    assert account["ended"] == "stopped"
    assert account["x"] == list(range(account["samples"])) and 50 <= account["samples"] <= 52
    assert (account["lost"], account["unknown_losses"]) == ({}, 0)


def test_the_next_session_plays_the_source_from_its_beginning(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    driver = rig.driver(batch(0, 4))
    first: list[dict[str, Any]] = []

    def twice() -> None:
        rig.until("ended")
        first.append(rig.stop()["fake"])
        rig.reports.clear()
        rig.second = rig.start()  # type: ignore[attr-defined]
        rig.until("ended")

    account = rig.record(driver, during=twice)
    assert first[0]["samples"] == account["samples"] == 4
    folder = rig.second / "fake"  # type: ignore[attr-defined]
    assert np.fromfile(folder / "x", "<u4")[::64].tolist() == [0, 1, 2, 3]
    assert rig.second.name == "s_2"  # type: ignore[attr-defined]
    assert driver.opened == 2


class DriverDiedError(Exception):
    """Nothing that a runner expects: its process ends of it."""


def resumed(rig: Rig, monkeypatch: pytest.MonkeyPatch, first: FakeDriver, again: Any) -> Any:
    """Record with a driver that dies in mid-session and with the one that is started for it."""
    sessions: list[Path] = []

    def begin() -> None:
        rig.until("armed")
        sessions.append(rig.start())

    starter = threading.Thread(target=begin)
    starter.start()
    try:
        with pytest.raises(DriverDiedError):
            Runner(first, rig.folder, rig.clock).run()
    finally:
        starter.join()
    rig.reports.clear()
    monkeypatch.setattr(rig, "start", lambda duration_s=None: sessions[0])
    return rig.record(again)


@pytest.mark.parametrize("died_at", [3, 4])
def test_a_driver_that_comes_back_plays_what_the_session_lacks_and_nothing_twice(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, died_at: int
) -> None:
    rig = make_rig()
    first = rig.driver(batch(0, died_at), DriverDiedError())
    again = rig.driver(batch(0, 2), batch(2, 4), batch(6))  # the second lies across the place
    account = resumed(rig, monkeypatch, first, again)
    assert account["x"] == list(range(7))
    assert account["t"] == [10 * n for n in range(7)]


def test_in_real_time_a_driver_that_comes_back_goes_on_from_now(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    first = rig.driver(*map(batch, range(3)), DriverDiedError(), pace="realtime")
    again = rig.driver(pace="realtime")
    again.script = map(batch, itertools.count())  # however late it is opened
    again_ns: list[int] = []

    def stop() -> None:
        wait_until("samples", lambda: rig.ask(op="status")["streams"]["fake"]["samples"] > 10)

    opened = again.open

    def reopen() -> Sequence[StreamSpec]:
        again_ns.append(rig.clock.monotonic_ns())
        return opened()

    monkeypatch.setattr(again, "open", reopen)
    record = rig.record
    monkeypatch.setattr(rig, "record", lambda driver: record(driver, during=stop))
    account = resumed(rig, monkeypatch, first, again)
    assert account["x"][:3] == [0, 1, 2]
    start_ns = rig.service_start(next(rig.root.iterdir()))
    since_ms = (again_ns[0] - start_ns) / MS
    assert account["t"][3] >= since_ms, "what was to come while it was away is not made up for"
    assert account["x"][3:] == list(range(account["x"][3], account["x"][3] + len(account["x"]) - 3))
