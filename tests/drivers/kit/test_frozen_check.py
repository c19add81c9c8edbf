"""A device that repeats one sample under fresh stamps is a fault, whoever looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.kit import frozen_check
from drivers.kit.driver import Item, Lost, Sample, State
from drivers.kit.frozen_check import FROZEN_NS, FrozenCheck
from recorder.codecs.streams import ChannelSpec, StreamSpec
from tests.drivers.kit.test_device_life import Device, make_rig, until_committed
from tests.drivers.kit.test_runner import Rig
from tests.support.waiting import wait_until

__all__ = ["make_rig"]

S = 1_000_000_000
JPEG = StreamSpec("cam", (ChannelSpec("video.avi", "mjpg", "u1", (4, 4, 3)),), rate_hz=30.0)
SWEEP = StreamSpec("lidar", (ChannelSpec("rng", "lzmaf", "u2", (16, 512)),), rate_hz=10.0)
IMU = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,)),), rate_hz=100.0)
NUMBERS = StreamSpec("bus", (ChannelSpec("speed", "raw", "f4"),), rate_hz=10.0)


class Watched:
    """The reports of a check of one stream."""

    def __init__(self, spec: StreamSpec, data: Callable[[int], Any], rate_hz: float = 10.0) -> None:
        self.reports: list[dict[str, Any]] = []
        self.check = FrozenCheck({spec.name: spec}, self._report)
        self._spec, self._data, self._rate_hz = spec, data, rate_hz
        self._number = 0

    def _report(self, event: str, **values: Any) -> None:
        self.reports.append(values | {"event": event, "at_s": self._number / self._rate_hz})

    def play(self, seconds: float) -> list[tuple[str, str, float]]:
        """Give samples for so long; what was reported so far."""
        for _ in range(round(seconds * self._rate_hz)):
            self._number += 1
            times = np.array([round(self._number / self._rate_hz * S)])
            data = {self._spec.channels[0].name: self._data(self._number)}
            self.check.take(Sample(self._spec.name, times, data))
        return [(r["kind"], r["cause"], r["at_s"]) for r in self.reports]


def test_one_picture_again_and_again_is_reported_once_and_its_end_too() -> None:
    moves = False
    watched = Watched(JPEG, lambda number: [b"jpeg %d" % (number if moves else 0)])
    ((kind, cause, at_s),) = watched.play(60)
    assert (kind, cause) == ("fault", "frozen") and 0 <= at_s - FROZEN_NS / S < 0.3
    moves = True
    assert [cause for _, cause, _ in watched.play(3)] == ["frozen", "moves"]
    moves = False
    assert [cause for _, cause, _ in watched.play(20)] == ["frozen", "moves", "frozen"]
    (text, *_) = [report["detail"] for report in watched.reports]
    assert text == "cam: frozen: it repeats one sample under fresh stamps for 8 s"
    assert {report["stream"] for report in watched.reports} == {"cam"}


@pytest.mark.parametrize("spec", [SWEEP, IMU], ids=["sweep", "imu"])
@pytest.mark.parametrize("moves", [True, False])
def test_arrays_are_compared_by_a_part_of_their_values(spec: StreamSpec, moves: bool) -> None:
    (channel,) = spec.channels
    rng = np.random.default_rng(1)
    still = rng.integers(1, 60_000, (3, *channel.shape)).astype(channel.np_dtype)

    def values(number: int) -> Any:
        return rng.permutation(still.reshape(-1)).reshape(still.shape) if moves else still.copy()

    causes = [cause for _, cause, _ in Watched(spec, values).play(12)]
    assert causes == ([] if moves else ["frozen"])


def test_a_large_array_is_compared_in_all_of_its_columns() -> None:
    spec = StreamSpec("radar", (ChannelSpec("iq", "raw", "i2", (512, 512)),))
    still = np.zeros((1, 512, 512), "<i2")

    def values(number: int) -> Any:
        data = still.copy()
        data[0, :, number % 512] = 7  # one column, another in each sample
        return data

    assert Watched(spec, values).play(12) == []


def test_numbers_of_a_bus_may_repeat() -> None:
    assert Watched(NUMBERS, lambda _: np.zeros(1, "<f4")).play(60) == []


def test_a_slow_stream_is_frozen_after_three_samples() -> None:
    watched = Watched(JPEG, lambda _: [b"jpeg"], rate_hz=0.05)
    assert watched.play(100) == [("fault", "frozen", 60.0)]


def test_a_sample_a_second_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def digest(values: Sequence[bytes], before: int) -> int:
        compared.append(len(values))
        return len(compared)

    monkeypatch.setattr(frozen_check, "_digest", digest)
    assert Watched(JPEG, lambda _: [b"jpeg"], rate_hz=100.0).play(10) == []
    assert len(compared) == 10


def test_states_losses_and_empty_samples_are_no_samples() -> None:
    watched = Watched(JPEG, lambda _: [b"jpeg"])
    items: list[Item | None] = [None, State("cam", 0, {}), Lost("cam", 0, "device", 1)]
    for item in [*items, Sample("cam", np.empty(0, np.int64), {"video.avi": []})]:
        watched.check.take(item)
    assert watched.reports == []


class Frozen(Device):
    """Gives one raw frame of a radar until it is told to move."""

    moves = False

    def open(self) -> Sequence[StreamSpec]:
        (spec,) = super().open()
        return [replace(spec, channels=(*spec.channels, ChannelSpec("iq", "raw", "i2", (4,))))]

    def read(self) -> Item | None:
        item = super().read()
        if isinstance(item, Sample):
            item.data = {**item.data, "iq": np.full((1, 4), self.given if self.moves else 0, "<i2")}
        return item


def test_the_driver_of_a_frozen_device_reports_it(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen_check, "FROZEN_NS", 1)
    monkeypatch.setattr(frozen_check, "_LOOK_NS", 1)
    rig = make_rig()
    driver = Frozen([], rig.clock)

    def causes() -> list[str]:
        return [values["cause"] for event, values in rig.reports if event == "event"]

    def freeze_and_move() -> None:
        wait_until("the driver", lambda: causes() == ["frozen"])
        driver.moves = True
        wait_until("the driver", lambda: causes() == ["frozen", "moves"])
        until_committed(rig, 1)  # the device gave its first samples before the session began

    account = rig.record(driver, during=freeze_and_move)
    assert account["samples"] >= 2 and causes() == ["frozen", "moves"]
