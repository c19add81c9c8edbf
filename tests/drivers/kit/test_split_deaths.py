"""Deaths over several seams, and a device that changes under its driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Item, Sample
from drivers.kit.runner import Runner
from recorder.bus.wire import Kind
from tests.campaigns import seeded
from tests.drivers.kit.sim_driver import CAMERA, IMU, LIDAR, LIDAR_IMU, SimDriver
from tests.drivers.kit.simulation import Plane
from tests.drivers.kit.test_dataplane import act, begin, expected, recorded
from tests.drivers.kit.test_device_life import Device
from tests.drivers.kit.test_runner import Rig, make_rig
from tests.drivers.kit.test_split import together
from tests.drivers.kit.test_split_faults import new_writer

__all__ = ["make_rig"]


@seeded(1, weight=60, least=6)
def test_drivers_and_writers_that_die_over_several_seams(make_plane: Any, seed: int) -> None:
    """Nothing acknowledged is lost, nothing is there twice, and what is cut short is counted."""
    plane: Plane = make_plane(seed)
    specs = {"cam": (CAMERA,), "lid": (LIDAR, LIDAR_IMU), "imu": (IMU,)}
    begin(plane, *specs.items())
    rng = plane.rng
    acknowledged: dict[tuple[str, int], int] = {}
    dead: dict[str, int] = {}  # by sensor, when it starts again

    def live() -> None:
        if rng.random() < 0.2 and plane.drivers:
            act(plane, rng.choice(list(plane.drivers.values())))
        if rng.random() < 0.002 and plane.deaths < 4:
            new_writer(plane)
        if rng.random() < 0.003 and plane.drivers and not dead:
            sensor = rng.choice(list(plane.drivers))
            acknowledged.update(on_disk(plane, plane.drivers[sensor]))
            plane.kill_driver(sensor)
            dead[sensor] = plane.now_ns + rng.choice([0, 300_000_000, 3_000_000_000])
            del plane.drivers[sensor]
        for sensor in [s for s, at_ns in dead.items() if plane.now_ns >= at_ns]:
            del dead[sensor]
            plane.start_driver(sensor, *specs[sensor])

    plane.disturb = live  # type: ignore[method-assign]
    accounts = []
    for _ in range(2):
        for _ in range(200):
            plane.step()
            live()
        accounts.append(plane.split_session())
    for _ in range(100):
        plane.step()
        live()
    plane.disturb = lambda: None  # type: ignore[method-assign]
    for driver in plane.drivers.values():
        acknowledged.update(on_disk(plane, driver))
    accounts.append(plane.stop_session())
    sums = together(*accounts)
    for stream in plane.offers:
        wanted, found = expected(plane, stream), recorded(plane, stream)
        cut = 0
        for epoch, rows in wanted.items():
            got = found.get(epoch, [])
            assert got == rows[: len(got)], "not a prefix of what was taken"
            assert len(got) >= acknowledged.get((stream, epoch), 0), "acknowledged and gone"
            # Of a stream that the writer has not heard of before, it cannot say so.
            cut += len(got) < len(rows) and min(found, default=epoch + 1) <= epoch
        assert sums[stream]["unknown_losses"] >= bool(cut)
        assert sums[stream]["samples"] == sum(map(len, found.values()))


def on_disk(plane: Plane, driver: SimDriver) -> dict[tuple[str, int], int]:
    """By stream and epoch, how many samples are acknowledged, on both sides of a seam."""
    boxes = [part.ring for part in driver.link.seam.parts]
    return {
        (name, box.epoch): len(expected(plane, name).get(box.epoch, []))
        - sum(m.count or 0 for m in stream.ring if m.kind is Kind.DATA)
        for box in boxes
        for name, stream in box._streams.items()
    }


class Growing(Device):
    """Gives samples of another size after a while."""

    def read(self) -> Item | None:
        item = super().read()
        if self.given > 20 and isinstance(item, Sample):
            item.data = {"x": np.zeros((1, 65), "<u4")}
        return item


def test_a_device_whose_samples_change_ends_its_stream(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    # Without a minimum rate: a busy machine is slow.
    rig.sensors = {"fake": {"driver": "d", "source": "s", "live": True, "min_rate": 0.0}}
    codes: list[int] = []
    run = Runner.run

    def ends(runner: Runner) -> int:  # `record` wants the code of a driver that was stopped
        codes.append(run(runner))
        return 0

    monkeypatch.setattr(Runner, "run", ends)
    account = rig.record(Growing([], rig.clock), during=lambda: rig.until("fault"))
    (fault,) = (values for name, values in rig.reports if name == "fault")
    assert fault["kind"] == "changed" and codes == [fault["exit_code"]]
    # The time to the session's end is lost; the next part has the new process's streams.
    assert account["ended"] == "changed" and account["unknown_losses"] == 1
