"""The Xsens driver at an emulated device: configuring, recording, losing, coming back."""

from __future__ import annotations

import errno
import fcntl
import os
import termios
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Item
from drivers.kit.emulator_faults import Fault
from drivers.world.imu import BOOT_NS
from drivers.xsens.commands import Mid, make_outputs
from drivers.xsens.connection import Mti
from drivers.xsens.driver import XsensDriver
from drivers.xsens.mtdata2 import Coordinates
from drivers.xsens.packets import encode_message
from recorder.common.errors import ConfigError, DeviceError, SourceError
from tests.drivers.xsens.rig import MtiRig
from tests.drivers.xsens.xsens_logs import log, sample
from tests.support.devices import (
    column,
    device_times,
    losses,
    make_driver,
    open_again,
    opened,
    samples,
    states,
    streaming,
    terminal,
    times,
)
from tests.support.waiting import PATIENCE_S

ERROR = encode_message(Mid.ERROR, b"\x28\x00")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for messages that are less late: times are looked at elsewhere."""
    monkeypatch.setattr("drivers.xsens.live._FIRST_NS", 30_000_000)


def counted(items: list[Item]) -> int:
    """Samples that are told to be lost; all must be counted."""
    counts = [lost.count for lost in losses(items)]
    assert None not in counts
    return sum(count or 0 for count in counts)


def simulated(first: int, count: int, **options: Any) -> list[Item]:
    """What the driver's own simulation gives, from sample `first` on."""
    with opened(make_driver(XsensDriver, "imu", "sim", **{"batch_ms": 0, **options})) as driver:
        items = [driver.read() for _ in range(first + count)][first:]
    return [item for item in items if item is not None]


# --- the same as simulated --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "more"),
    [
        (200.0, {}),
        (1000.0, {"outputs": ["quaternion", "magnetic_field"], "coordinates": "NED"}),
    ],
)
def test_a_device_gives_what_the_simulation_gives(rate: float, more: dict[str, Any]) -> None:
    with MtiRig(rate=rate, seed=7, driver={"seed": 7}, **more) as rig:
        (spec,) = rig.driver.open()
        items = rig.read(40)
    assert spec.rate_hz == rate and not spec.finite and spec.device_clock
    assert not losses(items)
    device_ns = device_times(items)
    first = round((int(device_ns[0]) - BOOT_NS) * rate / 1e9)
    expected = simulated(first, len(device_ns), rate=rate, **more)
    np.testing.assert_array_equal(device_ns, device_times(expected))
    names = [channel.name for channel in spec.channels]
    assert names == ["acc", "avel", "rot", *(["quat", "mag"] if more else [])]
    for name in names:
        np.testing.assert_array_equal(column(items, name), column(expected, name))
    assert (np.diff(times(items)) > 0).all()


def test_a_log_comes_out_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "imu.bin"
    parts = log(60, kind="euler_angles", coordinates=Coordinates.NED)
    path.write_bytes(b"".join(parts))
    with MtiRig(log=path) as rig:
        (spec,) = rig.driver.open()
        items = rig.read(60)
        rig.read_until(lambda _: rig.emulator.finished)
    with streaming(make_driver(XsensDriver, "imu", "file", path)) as (played, other):
        expected = [item for _ in range(60) if (item := played.read())]
    assert spec.channels == other.channels
    assert spec.settings["coordinates"] == "NED" and not spec.settings["configured"]
    for name in ("acc", "avel", "rot"):
        np.testing.assert_array_equal(column(items, name), column(expected, name))
    np.testing.assert_array_equal(device_times(items), device_times(expected))


# --- configuring ------------------------------------------------------------------------------


def test_it_configures_only_what_differs() -> None:
    with MtiRig(rate=100.0) as rig:
        taken = rig.emulator._device._take
        asked = []

        def take(wanted: Any) -> Any:
            asked.append(wanted)
            return taken(wanted)

        rig.emulator._device._take = take
        (spec,) = rig.driver.open()
        rig.driver.close()
        (again,) = rig.driver.open()
    assert asked == [make_outputs(100, ["euler_angles"])]
    assert again == spec
    assert spec.settings["device"]["product"] == "MTi-300 (emulated)"
    assert spec.settings["device"]["firmware"] == "1.9.2"
    assert spec.settings["outputs"][2:] == [
        "euler_angles(0x2030)@100", "acceleration(0x4020)@100", "rate_of_turn(0x8020)@100",
    ]  # fmt: skip


@pytest.mark.parametrize("baudrate", [921_600, 230_400])
def test_the_baud_rate_is_found(baudrate: int) -> None:
    with MtiRig(baudrate=baudrate, rate=5.0, driver={"baudrate": None}, answer_s=1.0) as rig:
        rig.driver.open()
        state = states([rig.driver.read() or pytest.fail("no state")])[0]
    assert state["baudrate"] == baudrate
    assert state["low_latency"] is False  # a pty has no such mode


def test_a_wrong_baud_rate_is_said() -> None:
    with (
        MtiRig(baudrate=460_800, driver={"baudrate": 115_200}, answer_s=0.25) as rig,
        pytest.raises(DeviceError, match="no MTi answers at 115200 baud"),
    ):
        rig.driver.open()


def test_what_it_cannot_say_is_warned_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    with MtiRig(rate=300.0) as rig:
        (spec,) = rig.driver.open()
        rig.driver.close()
        rig.driver.open()
    assert spec.rate_hz == 250.0
    reported = capsys.readouterr().err.splitlines()
    assert len(reported) == 2
    assert reported[0] == "imu: the device sends 250 samples a second, not 300"
    assert "low-latency" in reported[1]


def test_too_slow_a_line_is_refused() -> None:
    with (
        MtiRig(rate=400.0, baudrate=115_200) as rig,
        pytest.raises(SourceError, match=r"24\.8 kB/s exceed the 11\.5 kB/s of 115200 baud"),
    ):
        rig.driver.open()


def test_an_unknown_output_is_a_wrong_option() -> None:
    with MtiRig(driver={"outputs": ["heading"]}) as rig, pytest.raises(ConfigError) as caught:
        rig.driver.open()
    assert "imu.outputs: 'heading' is not one of euler_angles" in str(caught.value)


def test_a_device_that_lacks_an_output_says_so() -> None:
    with MtiRig() as rig:
        rig.emulator._device._take = lambda wanted: None
        with pytest.raises(DeviceError) as caught:
            rig.driver.open()
    assert "SET_OUTPUT_CONFIGURATION is rejected: a parameter is invalid" in str(caught.value)
    assert "MTi-300 (emulated) 0360E3A7, firmware 1.9.2 may lack" in str(caught.value)


def test_a_device_without_samples_is_said() -> None:
    with (
        MtiRig(driver={"configure": False}) as rig,  # as delivered it sends orientations alone
        pytest.raises(DeviceError, match=r"sends .*quaternion.*, but not both acceleration and"),
    ):
        rig.driver.open()


# --- losses -----------------------------------------------------------------------------------


def test_counted_is_what_was_injected() -> None:
    faults = [
        Fault("loss", at_s=0.05, count=7),
        Fault("corrupt", at_s=0.1, rate=0.05),
        Fault("duplicate", at_s=0.2, count=3),
        Fault("reorder", at_s=0.25, count=1),
        Fault("stall", at_s=0.4, duration_s=0.12),
    ]
    with MtiRig(faults, rate=400.0) as rig:
        rig.driver.open()
        end = round(0.8 * 400)
        items = rig.read_until(
            lambda items: sum(s.count for s in samples(items)) + counted(items) > end
        )
        # What is counted lies between samples: up to a last one, what came after it does not.
        last_ns = int(device_times(items)[-1]) - BOOT_NS
        injected = rig.emulator.injected
    assert injected["stall"] == 48 and injected["loss"] == 7 and injected["duplicate"] == 3
    assert injected["corrupt"] > 5 and injected["reorder"] == 1
    by_cause = {
        cause: sum(lost.count or 0 for lost in losses(items) if lost.cause == cause)
        for cause in ("device", "corrupt")
    }
    # A message that is late was counted when its successor came.
    device = injected["loss"] + injected["stall"] + injected["reorder"]
    assert by_cause["device"] >= device
    assert by_cause["device"] - device + by_cause["corrupt"] <= injected["corrupt"]
    received = sum(s.count for s in samples(items))
    first_ns = int(device_times(items)[0]) - BOOT_NS
    assert received + counted(items) == round((last_ns - first_ns) * 400 / 1e9) + 1
    repeated = sum(s.get("messages_repeated_or_late", 0) for s in states(items))
    assert repeated == injected["duplicate"] + injected["reorder"]
    # Gaps stand where they were made: the device's times tell how many belong between two samples.
    gaps = np.diff(device_times(items)) // 2_500_000 - 1
    assert gaps[gaps > 0].tolist() == [lost.count for lost in losses(items)]


def test_corrupt_messages_have_their_checksums_counted() -> None:
    with MtiRig([Fault("corrupt", at_s=0.05, count=1)], rate=200.0) as rig:
        rig.driver.open()
        items = rig.read_until(lambda items: bool(losses(items)))
    (lost,) = losses(items)
    assert (lost.cause, lost.count) == ("corrupt", 1)
    assert lost.detail["skipped_bytes"] == 62
    assert lost.detail["checksum_errors"] in (0, 1)  # 0: its preamble was hit


def test_a_jump_of_the_devices_clock_is_a_state() -> None:
    with MtiRig([Fault("clock_jump", at_s=0.1, value=-0.7)], rate=400.0) as rig:
        rig.driver.open()
        items = rig.read(160)
    assert not losses(items)
    (step,) = [s["device_clock_step_ns"] for s in states(items) if "device_clock_step_ns" in s]
    assert step == -700_000_000 + 2_500_000
    assert (np.diff(times(items)) > 0).all()
    assert times(items)[-1] - times(items)[0] < 160 * 2_500_000 + 600_000_000


# --- going and coming back --------------------------------------------------------------------


def until_gone(rig: MtiRig) -> tuple[list[Item], str]:
    items: list[Item] = []

    def keep(got: list[Item]) -> bool:
        items[:] = got
        return False

    with pytest.raises(DeviceError) as caught:
        rig.read_until(keep)
    return items, str(caught.value)


def reopened(rig: MtiRig) -> list[str]:
    """As the kit does, without its back-off; what was said until it was back."""
    rig.driver.close()
    reported: list[str] = []
    open_again(rig.driver, reported)
    return reported


def test_unplugged_and_plugged_in_again() -> None:
    with MtiRig([Fault("unplug", at_s=0.2, duration_s=0.2)], rate=200.0, answer_s=1.0) as rig:
        (spec,) = rig.driver.open()
        before, reported = until_gone(rig)
        assert not losses(before) and len(times(before)) >= 1  # what came before is given out
        assert "imu: serial:" in reported
        assert any("No such file" in reason for reason in reopened(rig))
        after = rig.read(10)
        assert rig.emulator.injected["unplug"] >= 40
    assert rig.driver.sensor.name == spec.name
    assert times(after)[0] > times(before)[-1] + 190_000_000
    assert not losses(after)  # the kit tells the interval
    assert device_times(after)[0] < BOOT_NS  # it was without power


def test_a_device_that_starts_anew_is_configured_anew() -> None:
    with MtiRig([Fault("reboot", at_s=0.2, duration_s=0.05)], rate=200.0, answer_s=1.0) as rig:
        rig.driver.open()
        before, reported = until_gone(rig)
        assert reported.endswith("the device has restarted")
        reopened(rig)
        after = rig.read(5)
        assert rig.emulator.injected["reboot"] >= 10
    assert len(times(before)) > 10 and not losses(before) and not losses(after)


def test_silence_is_a_device_that_has_gone() -> None:
    with MtiRig([Fault("stall", at_s=0.1, duration_s=60)], driver={"timeout_s": 1}) as rig:
        rig.driver.open()
        items, reported = until_gone(rig)
    assert samples(items) and reported.endswith("no sample for 1 s")


def test_absent_ports(tmp_path: Path) -> None:
    def opened(path: Path) -> str:
        with pytest.raises(DeviceError) as caught:
            make_driver(XsensDriver, "imu", "serial", path).open()
        return str(caught.value)

    gone = tmp_path / "ttyUSB0"
    assert opened(gone) == f"imu: serial:{gone}: No such file or directory"
    gone.write_text("no port")
    assert opened(gone).startswith(f"imu: serial:{gone}: ")


def test_a_port_that_another_program_has() -> None:
    with MtiRig() as rig:
        rig.driver.open()
        with pytest.raises(DeviceError, match="another program uses the port"):
            Mti(rig.address, "imu")


def test_a_port_with_something_else_behind_it() -> None:
    """Nobody answers, but bytes come: it says so within its time."""
    with terminal() as (master, port):
        mti = Mti(port, "imu: serial:pty")
        os.write(master, bytes(range(256)) * 8 + sample(1, counter=1, ticks=5) + ERROR)
        with pytest.raises(DeviceError, match="no MTi answers at 9600, 4800 baud"):
            mti.find([9600, 4800])
        os.close(master)
        with pytest.raises(DeviceError, match="imu: serial:pty: "):
            mti.receive(1.0)
        mti.close()


def test_low_latency_mode_is_asked_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """TIOCSSERIAL with ASYNC_LOW_LATENCY; a pty refuses it, a port of the test's does not."""
    flags = []

    def ioctl(fd: int, request: int, arg: Any = 0, *rest: Any) -> Any:
        if request == termios.TIOCGSERIAL:
            return 0
        if request == termios.TIOCSSERIAL:
            flags.append(arg[4])
            return 0
        return real(fd, request, arg, *rest)

    real = fcntl.ioctl
    with MtiRig() as rig:
        monkeypatch.setattr(fcntl, "ioctl", ioctl)
        mti = Mti(rig.address, "imu")
        assert mti.low_latency and flags == [0x2000]
        mti.close()
        quiet = Mti(rig.address, "imu", low_latency=False)
        assert not quiet.low_latency and flags == [0x2000]
        quiet.close()


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EIO, errno.ENXIO])
def test_a_converter_that_is_pulled(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A USB converter's port gives errors where a pty comes to an end."""

    def read(fd: int, size: int) -> bytes:
        raise OSError(number, "gone")

    with MtiRig() as rig:
        mti = Mti(rig.address, "imu: serial:x")
        with monkeypatch.context() as patch, pytest.raises(DeviceError) as caught:
            patch.setattr("drivers.xsens.connection.read_bytes", read)
            while True:
                mti.receive(1.0)
        mti.close()
    assert str(caught.value) == f"imu: serial:x: {os.strerror(number)}"


def test_each_message_of_a_chunk_began_when_its_bytes_did() -> None:
    """On a line of 115,200 baud a byte takes 1/11,520 s; what lies behind it came later."""
    now = [1_000_000_000]
    with terminal() as (master, port):
        mti = Mti(port, "imu", now_ns=lambda: now[0])
        for turn in range(2):
            now[0] += turn * 50_000_000
            messages = [encode_message(Mid.MTDATA2, bytes(size)) for size in (3, 201, 42)]
            os.write(master, b"".join(messages))
            received: list[Any] = []
            while len(received) < 3:
                received += (more := mti.receive(PATIENCE_S))
                assert more, "no more came"
            left = [sum(map(len, messages[k:])) for k in range(3)]
            began = [now[0] - round(bytes_left * 1e9 / 11_520) for bytes_left in left]
            assert [len(message.data) for message, _ in received] == [3, 201, 42]
            assert [t_ns for _, t_ns in received] == began
        mti.close()


def test_an_error_of_the_device_is_a_state_and_no_loss() -> None:
    with MtiRig(rate=200.0) as rig:
        rig.driver.open()
        rig.emulator._write(ERROR)
        items = rig.read_until(lambda items: any("device_error" in s for s in states(items)))
    assert not losses(items)
    reported = next(s for s in states(items) if "device_error" in s)
    assert reported["device_error"].startswith("the device has an error")


def test_after_its_first_samples_each_is_given_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the first are kept until there are enough to tell the least late one."""
    monkeypatch.setattr("drivers.xsens.live._FIRST_NS", 300_000_000)
    given, received, waiting = 0, 0, list[int]()
    receive = Mti.receive

    def receiving(self: Mti, timeout_s: float) -> Any:
        nonlocal received
        if given:
            waiting.append(received - given)
        messages = receive(self, timeout_s)
        received += sum(message.mid == Mid.MTDATA2 for message, _ in messages)
        return messages

    with MtiRig(rate=200.0, batch_ms=0.0) as rig:
        rig.driver.open()
        monkeypatch.setattr(Mti, "receive", receiving)
        received = 0
        while given < 100 or len(waiting) < 3:  # all of a hundred may come at once
            item = rig.driver.read()
            given += sum(s.count for s in samples([item] if item is not None else []))
    assert max(waiting) - min(waiting) <= 1
