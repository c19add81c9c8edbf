"""A device that is absent, goes away, comes back, perhaps as another; the parts of a session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit import runner as runner_module
from drivers.kit.driver import Item, Sample, SensorConfig, State
from drivers.kit.runner import Runner
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import DeviceError
from recorder.session.layout import SessionPlan
from tests.drivers.kit.test_runner import FakeDriver, Rig, batch, make_rig
from tests.support.waiting import wait_until

__all__ = ["make_rig"]

WIDER = StreamSpec("fake", (ChannelSpec("x", "raw", "u4", (65,)),), rate_hz=100.0)


class Device(FakeDriver):
    """Does at each `open` and `read` what a script says; samples are stamped now."""

    live_schemes = frozenset({"script"})

    def __init__(self, opens: Sequence[Any], clock: Any) -> None:
        super().__init__(SensorConfig("fake", "script", "", {}, "realtime", False))
        self.opens = iter(opens)
        self.clock = clock
        self.given = 0
        self.gone = False

    def open(self) -> Sequence[StreamSpec]:
        outcome = next(self.opens, None)
        if isinstance(outcome, Exception):
            raise outcome
        specs = list(super().open())
        return [outcome] if isinstance(outcome, StreamSpec) else specs

    def read(self) -> Item | None:
        if self.gone:
            self.gone = False
            raise DeviceError("fake: unplugged")
        time.sleep(0.0005)
        self.given += 1
        if self.given == 1:
            return State("fake", self.clock.monotonic_ns(), {"gain": 7}, lasting=True)
        sample = batch(self.given)
        return Sample("fake", np.array([self.clock.monotonic_ns()], np.int64), dict(sample.data))


def device_reports(rig: Rig) -> list[str]:
    return [values["state"] for name, values in rig.reports if name == "device"]


def lines(session: Path, name: str) -> list[dict[str, Any]]:
    text = (session / "_recorder" / name).read_text()
    return [json.loads(line) for line in text.splitlines()]


def until_committed(rig: Rig, count: int) -> None:
    def committed() -> bool:
        streams = rig.ask(op="status")["streams"]
        return bool(streams.get("fake", {}).get("samples", 0) > count)

    wait_until("samples are committed", committed)


def unplug(rig: Rig, driver: Device, *states: str) -> None:
    """Have the device go, and return when this was reported of it."""
    later(driver)
    driver.gone = True
    wait_until("the driver", lambda: device_reports(rig) == list(states))


def pass_a_second(rig: Rig) -> None:
    now_ns = rig.clock.monotonic_ns()
    wait_until("the driver", lambda: rig.clock.monotonic_ns() > now_ns + 1_000_000_000)


def later(driver: Device, count: int = 20) -> None:
    """Return when the device has given so many samples more."""
    until = driver.given + count
    wait_until("the driver", lambda: driver.given >= until)


def test_an_absent_device_is_told_and_tried_again(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    gone = DeviceError("fake: no answer")
    driver = Device([gone, gone, gone], rig.clock)
    account = rig.record(driver, during=lambda: later(driver))
    assert device_reports(rig) == ["absent", "present"], "said once"
    assert account["samples"] > 10 and account["unknown_losses"] == 0


def test_a_devices_samples_are_counted_without_a_session(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    driver = Device([], rig.clock)
    before: list[tuple[int, int, int]] = []
    start = rig.start

    def start_later(duration_s: float | None = None) -> Path:
        def counted() -> bool:
            given = [values["given"]["fake"] for event, values in rig.reports if event == "stats"]
            before[:] = [counts for counts in given if counts[0] > 20]
            return bool(before)

        wait_until("samples", counted)
        return start(duration_s)

    monkeypatch.setattr(rig, "start", start_later)
    rig.record(driver, during=lambda: later(driver))
    samples, nbytes, last_ns = before[0]
    assert 20 < samples <= driver.given and nbytes == samples * 256
    assert 0 < last_ns <= rig.clock.monotonic_ns()


def test_a_device_that_appears_late_has_an_interval_of_loss(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    driver = Device([DeviceError("fake: no answer")] * 4, rig.clock)
    session: list[Path] = []
    report, start = runner_module.report, rig.start

    def once(event: str, **values: Any) -> None:
        report(event, **values)
        if event == "device" and values["state"] == "absent":
            session.append(start())

    monkeypatch.setattr(runner_module, "report", once)
    monkeypatch.setattr(rig, "start", lambda duration_s=None: session[0])
    account = rig.record(driver, during=lambda: later(driver))
    assert account["unknown_losses"] == 1 and account["samples"] > 10
    (lost,) = (e for e in lines(session[0], "events.jsonl") if e["type"] == "lost")
    assert lost["cause"] == "device" and lost["duration_ns"] > 1e9 and lost["estimate"] > 100


def test_a_device_that_goes_and_comes_back(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    gone = DeviceError("fake: no answer")
    driver = Device([None, gone, gone], rig.clock)

    def away() -> None:
        unplug(rig, driver, "lost", "present")
        later(driver)

    account = rig.record(driver, during=away)
    assert account["unknown_losses"] == 1 and account["ended"] == "stopped"
    assert account["x"] == sorted(set(account["x"])), "nothing twice"
    (session,) = (path for path in rig.root.iterdir())
    (lost,) = (e for e in lines(session, "events.jsonl") if e["type"] == "lost")
    assert (lost["cause"], lost["count"]) == ("device", None)
    gap_s = lost["duration_ns"] / 1e9
    assert gap_s > 1.0 and lost["estimate"] == pytest.approx(gap_s * 100, abs=1)
    reported = [line["state"] for line in lines(session, "log.jsonl")]
    assert reported[0] == {"gain": 7}, "what holds is said at the start of every session"
    assert [t["device"] for t in reported if "device" in t] == ["lost", "back"]


def test_what_lasts_is_told_as_it_is_when_a_session_begins(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it: what was said first and since, the newest of each, in every session."""

    class Settings(Device):
        def read(self) -> Item | None:
            item = super().read()
            more = {2: {"exposure": 3}, 3: {"gain": 8}, 4: {"passing": 1}}.get(self.given)
            if more is None:
                return item
            return State("fake", self.clock.monotonic_ns(), more, lasting="passing" not in more)

    rig = make_rig()
    driver = Settings([], rig.clock)
    sessions: list[Path] = []
    start = rig.start

    def late(duration_s: float | None = None) -> Path:
        wait_until("the driver", lambda: driver.given > 4)
        sessions.append(start())
        return sessions[0]

    def again() -> None:
        later(driver)
        rig.stop()
        sessions.append(start())
        later(driver)

    monkeypatch.setattr(rig, "start", late)
    rig.record(driver, during=again)
    assert len(sessions) == 2
    for session in sessions:
        reported = [line["state"] for line in lines(session, "log.jsonl")]
        assert reported == [{"gain": 8, "exposure": 3}]


def test_a_session_that_ends_while_its_device_is_away(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    driver = Device([None, *[DeviceError("fake: no answer")] * 1000], rig.clock)

    def away() -> None:
        unplug(rig, driver, "lost")
        pass_a_second(rig)

    account = rig.record(driver, during=away)
    assert account["unknown_losses"] == 1


def test_a_device_that_is_away_for_a_whole_session_is_absent_in_it(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    driver = Device([None, *[DeviceError("fake: no answer")] * 1000], rig.clock)
    sessions: list[Path] = []

    def away() -> None:
        unplug(rig, driver, "lost")
        rig.stop()
        sessions.append(rig.start())
        pass_a_second(rig)

    account = rig.record(driver, during=away)
    assert (account["samples"], account["unknown_losses"]) == (0, 1)
    causes = [
        [e["cause"] for e in lines(path, "events.jsonl") if e["type"] == "lost"]
        for path in (rig.root / "s", *sessions)
    ]
    assert causes == [["device"], ["absent"]]


def test_a_device_that_comes_back_as_another_ends_its_stream(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    driver = Device([None, WIDER], rig.clock)
    runner_code: list[int] = []

    def away() -> None:
        later(driver)
        driver.gone = True
        rig.until("fault")

    # `record` wants the code of a driver that was stopped; this one ends by itself.
    run = Runner.run
    try:
        Runner.run = lambda self: runner_code.append(run(self)) or 0  # type: ignore
        account = rig.record(driver, during=away)
    finally:
        Runner.run = run  # type: ignore[method-assign]
    (fault,) = (values for name, values in rig.reports if name == "fault")
    assert fault["kind"] == "changed" and runner_code == [fault["exit_code"]]
    assert account["ended"] == "changed"


class Late(Device):
    """Gives its samples 300 ms after they were measured, in batches of 40."""

    def read(self) -> Item | None:
        time.sleep(0.001)
        self.given += 40
        sample = batch(self.given, 40)
        end_ns = self.clock.monotonic_ns() - 300_000_000
        times = end_ns - np.arange(39, -1, -1) * 1000
        return Sample("fake", times.astype(np.int64), dict(sample.data))


def test_what_was_measured_before_a_session_is_not_in_it(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    account = rig.record(Late([], rig.clock), during=lambda: until_committed(rig, 40))
    assert min(account["t"]) >= 0 and account["lost"] == {}


@pytest.fixture
def split(make_rig: Callable[..., Rig]) -> Iterator[Callable[[Rig], dict[str, Any]]]:
    def ask(rig: Rig) -> dict[str, Any]:
        plan = SessionPlan(str(rig.root), "s", False, "")
        return rig.ask(op="split", plan=plan.to_wire(), live=["fake"])

    yield ask


def test_a_device_goes_on_in_the_next_part(
    make_rig: Callable[..., Rig], split: Callable[[Rig], dict[str, Any]]
) -> None:
    rig = make_rig()
    driver = Device([], rig.clock)
    replies = []

    def parts() -> None:
        later(driver)
        replies.append(split(rig))
        later(driver)

    account = rig.record(driver, during=parts)
    (reply,) = replies
    first, second = Path(reply["previous"]["closed"]), Path(reply["session"])
    numbers = [np.fromfile(p / "fake" / "x", "<u4")[::64].tolist() for p in (first, second)]
    assert numbers[0] and numbers[1]
    whole = numbers[0] + numbers[1]
    assert whole == list(range(whole[0], whole[0] + len(whole))), "no seam in the numbers"
    seam_ns = rig.service_start(second)
    t_mono = [np.fromfile(p / "fake" / "t_mono", "<u8") for p in (first, second)]
    assert t_mono[0][-1] < t_mono[1][0] and t_mono[1][0] >= seam_ns
    assert {"gain": 7} in [line["state"] for line in lines(second, "log.jsonl")]
    assert account["unknown_losses"] == 0 and reply["previous"]["streams"]["fake"]["lost"] == {}


@pytest.mark.parametrize("loop", [False, True])
def test_a_played_source_goes_on_in_the_next_part(
    make_rig: Callable[..., Rig], split: Callable[[Rig], dict[str, Any]], loop: bool
) -> None:
    rig = make_rig()
    script = [batch(n) for n in range(40 if loop else 4000)]
    driver = rig.driver(*script, pace="realtime", loop=loop)
    replies = []

    def parts() -> None:
        until_committed(rig, 60)
        replies.append(split(rig))
        until_committed(rig, 60)

    rig.record(driver, during=parts)
    (reply,) = replies
    sessions = [Path(reply["previous"]["closed"]), Path(reply["session"])]
    numbers = [np.fromfile(p / "fake" / "x", "<u4")[::64].tolist() for p in sessions]
    whole = numbers[0] + numbers[1]
    assert whole == [n % len(script) for n in range(len(whole))]
    start_ns = rig.service_start(sessions[0])
    t_ms = np.concatenate([np.fromfile(p / "fake" / "t_mono", "<u8") for p in sessions])
    assert (t_ms.astype(np.int64) - start_ns).tolist() == [
        10_000_000 * n for n in range(len(whole))
    ], "on the timeline of the first part"
