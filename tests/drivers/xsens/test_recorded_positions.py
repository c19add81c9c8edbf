"""The Xsens driver at emulated GNSS/INS devices: what is asked for, and what is recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from drivers.kit.driver import Item, Sample
from drivers.kit.emulator_faults import Fault
from drivers.world import World, mounts
from drivers.world.imu import BOOT_NS
from drivers.xsens.commands import Output, Outputs, make_outputs
from drivers.xsens.device_types import MODELS
from drivers.xsens.model import ORIGIN, accept_outputs
from recorder.perception.earth import earth_points, local_to_earth
from tests.drivers.xsens.rig import MtiRig
from tests.support.devices import column, losses, samples, states

ALL = {0x1010, 0x1020, 0x1060, 0x2030, 0x4020, 0x5022, 0x5042, 0x7010, 0x8020, 0xD012, 0xE020}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for messages that are less late."""
    monkeypatch.setattr("drivers.xsens.live._FIRST_NS", 30_000_000)


def rows_of(items: Sequence[Item]) -> list[Sample]:
    return [item for item in samples(items) if item.stream == "imu_gnss"]


def read_rows(rig: MtiRig, count: int) -> list[Item]:
    return rig.read_until(lambda items: len(rows_of(items)) >= count)


def asked_of(rig: MtiRig, lacks: Sequence[int] = ()) -> list[Outputs]:
    """Every configuration that the device is sent; it refuses those with an output it lacks."""
    asked: list[Outputs] = []
    taken = rig.emulator._device._take

    def take(wanted: Sequence[Output]) -> Outputs | None:
        asked.append(tuple(wanted))
        return None if {o.data_type for o in wanted} & set(lacks) else taken(wanted)

    rig.emulator._device._take = take
    return asked


@pytest.mark.parametrize(
    ("model", "pvt_hz"), [("MTi-G-710", 4), ("MTi-7", 65535), ("MTi-680G", 65535)]
)
def test_positions_are_asked_for_and_recorded(model: str, pvt_hz: int) -> None:
    with MtiRig(model=model, driver={"model": "MTi-300"}) as rig:
        asked = asked_of(rig)
        imu, gnss = rig.driver.open()
        items = read_rows(rig, 12)
        rig.driver.close()
        assert list(rig.driver.open()) == [imu, gnss]
        taken = rig.emulator._device.outputs
    # It is configured once: the device's answer about the receiver's rate is no difference.
    assert len(asked) == 1 and {o.data_id for o in asked[0]} == ALL
    assert Output(0x7010, pvt_hz) in taken and Output(0x5042, 10) in taken
    assert imu.rate_hz == 100 and gnss.name == "imu_gnss" and gnss.rate_hz == 10
    assert gnss.settings["device"]["product"] == f"{model} (emulated)"
    assert not losses(items)
    rows = rows_of(items)
    device_ns = np.concatenate([row.t_dev_ns for row in rows if row.t_dev_ns is not None])
    assert (np.diff(device_ns) == 100_000_000).all()
    motion = World("drive", 0).trajectory.motion((device_ns - BOOT_NS) / 1e9)
    place = motion.position_m + motion.rotation @ mounts.IMU.translation
    on_earth = place @ local_to_earth(ORIGIN)[:3, :3].T + local_to_earth(ORIGIN)[:3, 3]
    np.testing.assert_allclose(earth_points(column(rows, "pos")), on_earth, atol=1e-3)
    assert (column(rows, "fix")[-1], column(rows, "sats")[-1]) == (3, 12)
    assert (column(rows, "status") == 7).all() and (column(rows, "source") == 2).all()
    # A position has the time of the sample in whose message it came.
    stamps: dict[int, int] = {}
    for item in samples(items):
        if item.stream == "imu" and item.t_dev_ns is not None:
            stamps |= zip(item.t_dev_ns.tolist(), item.t_ns.tolist(), strict=True)
    assert all(stamps[int(t)] == row.t_ns[0] for t, row in zip(device_ns[:-1], rows, strict=False))


@pytest.mark.parametrize(
    ("lacks", "left"),
    [
        ([0x1010], ALL - {0x1010}),  # UtcTime: early firmware of the MTi-1 series
        ([0x7010], ALL - {0x7010}),  # GnssPvtData: early firmware of the MTi-G-700
        ([0x1010, 0x7010], ALL - {0x1010, 0x7010}),
    ],
)
def test_what_a_device_lacks_is_left_out(
    lacks: list[int], left: set[int], capsys: pytest.CaptureFixture[str]
) -> None:
    with MtiRig(model="MTi-G-710") as rig:
        asked_of(rig, lacks)
        _, gnss = rig.driver.open()
        items = read_rows(rig, 3)
        assert {o.data_id for o in rig.emulator._device.outputs} == left
    assert gnss.rate_hz == 10
    assert "imu: without " in capsys.readouterr().err
    assert (column(rows_of(items), "fix") == 3).any()  # of StatusWord, or of the receiver
    assert not losses(items)


def test_a_device_without_positions_is_recorded_without(capsys: pytest.CaptureFixture[str]) -> None:
    with MtiRig(model="MTi-G-710") as rig:
        asked_of(rig, [0x5040])
        (imu,) = rig.driver.open()
        rig.read(5)
        assert rig.emulator._device.outputs == make_outputs(100, ["euler_angles"])
    assert imu.name == "imu"
    assert "no positions: the device does not support them" in capsys.readouterr().err


def test_other_devices_are_not_asked() -> None:
    with MtiRig() as rig:
        asked = asked_of(rig)
        (imu,) = rig.driver.open()
    assert asked == [make_outputs(100, ["euler_angles"])] and imu.name == "imu"


def test_positions_that_are_not_wanted_are_not_asked_for() -> None:
    with MtiRig(model="MTi-7", gnss=False) as rig:
        asked = asked_of(rig)
        (imu,) = rig.driver.open()
        rig.read(5)
    assert asked == [make_outputs(100, ["euler_angles"])] and imu.name == "imu"


def test_a_line_carries_samples_before_positions() -> None:
    """At 115200 baud, 150 samples a second leave no room for UtcTime."""
    with MtiRig(model="MTi-G-710", rate=125.0, baudrate=115_200) as rig:
        rig.driver.open()
        outputs = {o.data_id for o in rig.emulator._device.outputs}
        items = read_rows(rig, 3)
    assert outputs == ALL
    assert not losses(items)
    with MtiRig(model="MTi-G-710", rate=150.0, baudrate=115_200) as rig:
        rig.driver.open()
        assert {o.data_id for o in rig.emulator._device.outputs} == ALL - {0x1010}


def test_a_configuration_that_is_kept_is_recorded() -> None:
    """`configure: false`: positions at the rate that the device has."""
    with MtiRig(model="MTi-680G", driver={"configure": False}) as rig:
        outputs = (*make_outputs(100, ["euler_angles"]), Output(0x5043, 50), Output(0x5023, 50))
        rig.emulator._device.outputs = accept_outputs(outputs, MODELS["MTi-680G"]) or ()
        _, gnss = rig.driver.open()
        items = read_rows(rig, 5)
    rows = rows_of(items)
    assert gnss.rate_hz == 50
    assert np.isnan(column(rows, "vel")).all() and np.isfinite(column(rows, "pos")).all()
    np.testing.assert_allclose(
        column(rows, "pos")[:, :2], np.tile(ORIGIN[:2], (5, 1))[: len(rows)], atol=1e-2
    )


@pytest.mark.campaign
def test_lost_messages_lose_positions() -> None:
    faults = [Fault("stall", at_s=0.3, duration_s=0.45), Fault("loss", at_s=1.2, count=12)]
    with MtiRig(faults, model="MTi-G-710") as rig:
        rig.driver.open()
        items = rig.read_until(lambda items: len(rows_of(items)) >= 12)
    rows = rows_of(items)
    gaps = np.diff(np.concatenate([row.t_dev_ns for row in rows if row.t_dev_ns is not None]))
    absent = gaps // 100_000_000 - 1
    told = [lost.count or 0 for lost in losses(items) if lost.stream == "imu_gnss"]
    assert absent[absent > 0].tolist() == told and sum(told[:1]) in (4, 5)
    assert {lost.cause for lost in losses(items)} == {"device"}


@pytest.mark.campaign
def test_a_restart_of_the_device_does_not_disturb_positions() -> None:
    with MtiRig([Fault("clock_jump", at_s=0.5, value=-0.7)], model="MTi-680G") as rig:
        rig.driver.open()
        items = read_rows(rig, 14)
    rows = rows_of(items)
    t_ns = np.concatenate([row.t_ns for row in rows])
    assert (np.diff(t_ns) > 0).all() and not losses(items)
    assert any("device_clock_step_ns" in state for state in states(items))
    assert (column(rows, "fix")[4:] == 3).all()
