"""The simulated MTi: its messages, its answers, and its emulation with made-up times."""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.emulator_faults import Fault
from drivers.world import World
from drivers.world.imu import BOOT_NS, TICK_NS, SimulatedImu
from drivers.xsens.commands import (
    WAKE_UP_NS,
    Mid,
    Output,
    Outputs,
    are_same_outputs,
    decode_outputs,
    encode_outputs,
    make_gnss_outputs,
    make_outputs,
)
from drivers.xsens.device_types import MODELS
from drivers.xsens.driver import XsensDriver
from drivers.xsens.emulator import XsensEmulator
from drivers.xsens.emulator_commands import BOOT_NS as START_NS
from drivers.xsens.emulator_commands import MtiDevice, MtiState
from drivers.xsens.model import ImuPackets, accept_outputs, quaternions, receiver_data
from drivers.xsens.mtdata2 import Coordinates, MtData2, decode_mtdata2
from drivers.xsens.packets import MID_MTDATA2, XbusMessage, XbusParser, encode_message
from drivers.xsens.positions import Pvt
from recorder.common.errors import SourceError
from recorder.config.options import check_options
from recorder.config.settings import SensorEntry

ALL = ("quaternion", "euler_angles", "rotation_matrix", "magnetic_field")
MS = 1_000_000


# --- messages ---------------------------------------------------------------------------------


def test_messages_hold_what_the_imu_feels() -> None:
    imu = SimulatedImu(100.0, World("drive", seed=3))
    outputs = make_outputs(100, ALL)
    messages = XbusParser().feed(b"".join(ImuPackets(imu, outputs).messages(500, 800)))
    batch = imu.samples(500, 800)
    assert [m.mid for m in messages] == [MID_MTDATA2] * 800
    decoded = [decode_mtdata2(m.data) for m in messages]
    assert [v.packet_counter for v in decoded] == list(range(500, 1300))
    assert [(v.sample_time_fine or 0) * TICK_NS for v in decoded] == batch.t_dev_ns.tolist()
    np.testing.assert_array_equal([v.acceleration for v in decoded], batch.acc)
    np.testing.assert_array_equal([v.rate_of_turn for v in decoded], batch.avel)
    degrees = np.array([v.euler_angles for v in decoded])
    np.testing.assert_allclose(np.radians(degrees), batch.rot, atol=3e-7)
    for v, rotation in zip(decoded, batch.rotation, strict=True):
        matrix = np.reshape(v.rotation_matrix or (), (3, 3)).T  # it comes column by column
        np.testing.assert_allclose(matrix, rotation, atol=1e-7)
        assert v.quaternion is not None and v.quaternion[0] >= 0
        np.testing.assert_allclose(v.rotation or (), np.radians(v.euler_angles or ()), atol=1e-6)
        alone = MtData2(quaternion=v.quaternion)
        np.testing.assert_allclose(alone.rotation or (), v.rotation or (), atol=3e-6)
        field = rotation @ (v.magnetic_field or ())
        np.testing.assert_allclose(field, [0, 0.4, -0.9165151], atol=1e-6)


def test_quaternions_of_every_kind_of_rotation() -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(size=(500, 4))
    q = np.concatenate([q, np.eye(4), [[1e-9, 1, 0, 0], [0, 1, 1, 0]]])
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    w, x, y, z = q.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    found = quaternions(np.moveaxis(np.array(rows), -1, 0))
    same = np.abs((found * q).sum(axis=1))
    np.testing.assert_allclose(same, 1, atol=1e-12)
    assert (found[:, 0] >= 0).all()


@pytest.mark.parametrize("frame", list(Coordinates))
def test_orientation_in_every_local_frame(frame: Coordinates) -> None:
    """The axes of the vehicle, told in that frame, are those of the world."""
    imu = SimulatedImu(20.0, World("drive"))
    rotations = imu.samples(0, 200).rotation
    values = ImuPackets(imu, make_outputs(20, ["rotation_matrix"], frame)).values(0, 200)
    for v, rotation in zip(values, rotations, strict=True):
        east, north, up = rotation
        expected = {
            Coordinates.ENU: [east, north, up],
            Coordinates.NED: [north, east, -up],
            Coordinates.NWU: [north, -east, up],
        }[frame]
        assert v.coordinates is frame
        np.testing.assert_allclose(np.reshape(v.rotation_matrix or (), (3, 3)).T, expected)


def test_the_receivers_messages_lie_between_those_of_samples() -> None:
    """As a real MTi-G-710's: its own message, stamped with the time at which it was valid."""
    outputs = (*make_outputs(100, ["euler_angles"]), *make_gnss_outputs(100, 10))
    packets = ImuPackets(SimulatedImu(100.0), outputs, MODELS["MTi-G-710"])
    messages = [
        decode_mtdata2(m.data) for m in XbusParser().feed(b"".join(packets.messages(0, 500)))
    ]
    assert [v.packet_counter for v in messages] == list(range(520))
    pvts = [k for k, v in enumerate(messages) if v.gnss_pvt is not None]
    assert len(pvts) == 20
    for number, k in enumerate(pvts):
        before, pvt = messages[k - 1], messages[k]
        assert [i & 0xFFF0 for i in pvt.data_ids] == [0x7010, 0x1010, 0x1060, 0x1020]
        assert pvt.sample_time_fine == 600_000 + 2500 * number
        age = (before.sample_time_fine or 0) - pvt.sample_time_fine
        assert 350 <= age <= 450
        assert pvt.utc_time is not None and before.utc_time is not None
        seconds = pvt.utc_time[6] + pvt.utc_time[0] / 1e9
        assert seconds == pytest.approx(number * 0.25)
        assert before.utc_time[6] + before.utc_time[0] / 1e9 == pytest.approx(seconds + age / 1e4)
        data = Pvt._make(pvt.gnss_pvt or ())
        assert (data.fix, data.utc_ns % 10**9) == (3, number % 4 * 250_000_000)
    assert sum(v.latitude_longitude is not None for v in messages) == 50
    again = ImuPackets(SimulatedImu(100.0), outputs, MODELS["MTi-G-710"])
    cut = [m for first in range(0, 500, 50) for m in again.messages(first, 50)]
    assert cut == packets.messages(0, 500)


@pytest.mark.parametrize(
    ("model", "data_id", "taken"),
    [
        ("MTi-300", 0x5042, None),
        ("MTi-300", 0x7010, None),
        ("MTi-300", 0x1010, None),
        ("MTi-G-710", 0x5042, 400),
        ("MTi-G-710", 0x7010, 4),
        ("MTi-G-710", 0x1010, 0xFFFF),
        ("MTi-7", 0xD012, 100),
        ("MTi-7", 0x4020, 100),
        ("MTi-680G", 0x7010, 0xFFFF),
        ("MTi-680G", 0x7020, None),
        ("MTi-680G", 0x5032, 400),
    ],
)
def test_outputs_of_device_types(model: str, data_id: int, taken: int | None) -> None:
    """Outputs and rates of the maker's device library; the others are refused."""
    expected = None if taken is None else (Output(0x1020), Output(data_id, taken))
    assert accept_outputs([Output(0x1020), Output(data_id, 0xFFFF)], MODELS[model]) == expected
    mti = MtiDevice(115_200, (), lambda w: accept_outputs(w, MODELS[model]), MODELS[model])
    mti.receive(encode_message(Mid.GOTO_CONFIG, b""), 0)
    reply = mti.receive(
        encode_message(Mid.SET_OUTPUT_CONFIGURATION, encode_outputs([Output(data_id, 1)])), 0
    )
    (message,) = XbusParser().feed(reply)
    assert message.mid == (Mid.ERROR if taken is None else Mid.SET_OUTPUT_CONFIGURATION + 1)


def test_messages_do_not_depend_on_how_they_are_cut() -> None:
    def packets() -> ImuPackets:
        return ImuPackets(SimulatedImu(1000.0, World(seed=5)), make_outputs(1000, ALL))

    whole, cut = packets().messages(0, 300), packets()
    assert [m for first in range(0, 300, 7) for m in cut.messages(first, 7)][:300] == whole
    lengths = {len(message) for message in whole}
    assert len(lengths) == 4  # orientation every third time, the magnetic field every tenth


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ([(0x4020, 100), (0x8020, 100), (0x2034, 100)], [100, 100, 100]),
        ([(0x4020, 1000), (0x8020, 1000), (0x2010, 1000)], [1000, 1000, 333]),
        ([(0x4020, 300), (0x8020, 300)], [250, 250]),
        ([(0x4020, 0xFFFF), (0xC020, 0)], [2000, 100]),
        ([(0x4020, 400), (0x2010, 100)], [400, 100]),
        ([(0x1020, 0xFFFF), (0x1060, 5)], [0xFFFF, 0xFFFF]),
    ],
)
def test_what_the_device_makes_of_rates(asked: list[tuple[int, int]], taken: list[int]) -> None:
    outputs = accept_outputs([Output(*entry) for entry in asked])
    assert outputs is not None
    assert [o.rate_hz for o in outputs] == taken
    assert [o.data_id for o in outputs] == [data_id for data_id, _ in asked]
    assert accept_outputs([*outputs, Output(0x5040, 4)]) is None
    assert accept_outputs([Output(0x1028)]) is None


# --- answers ----------------------------------------------------------------------------------


def device(baudrate: int = 115_200) -> MtiDevice:
    return MtiDevice(baudrate, make_outputs(100, ["quaternion"]), accept_outputs)


def asked(talker: MtiDevice, mid: int, data: bytes = b"", now_ns: int = 0) -> list[XbusMessage]:
    return XbusParser().feed(talker.receive(encode_message(mid, data), now_ns))


def answer(talker: MtiDevice, mid: int, data: bytes = b"") -> tuple[int, bytes]:
    (reply,) = asked(talker, mid, data)
    return reply.mid, reply.data


def test_states_and_commands() -> None:
    mti = device()
    assert mti.state is MtiState.MEASURING
    assert answer(mti, Mid.REQ_DID) == (Mid.ERROR, b"\x04")
    assert answer(mti, Mid.GOTO_CONFIG) == (0x31, b"")
    assert answer(mti, Mid.GOTO_CONFIG) == (0x31, b"")  # it may be asked to make sure
    assert answer(mti, Mid.REQ_DID) == (0x01, bytes.fromhex("0360E3A7"))
    assert answer(mti, Mid.REQ_PRODUCT_CODE) == (0x1D, b"MTi-300 (emulated)  ")
    assert answer(mti, Mid.REQ_FW_REV) == (0x13, b"\x01\x09\x02")
    mid, data = answer(mti, Mid.SET_OUTPUT_CONFIGURATION)
    assert mid == 0xC1 and are_same_outputs(decode_outputs(data), make_outputs(100, ["quaternion"]))
    wanted = make_outputs(100, ["euler_angles"])
    assert answer(mti, Mid.SET_OUTPUT_CONFIGURATION, encode_outputs(wanted)) == (
        0xC1, encode_outputs(wanted),
    )  # fmt: skip
    assert answer(mti, Mid.SET_OUTPUT_CONFIGURATION, b"\x70\x10\0\4") == (Mid.ERROR, b"\x21")
    assert answer(mti, Mid.SET_OUTPUT_CONFIGURATION, b"\x70") == (Mid.ERROR, b"\x21")
    assert answer(mti, 0x99) == (Mid.ERROR, b"\x04")
    assert answer(mti, Mid.GOTO_MEASUREMENT) == (0x11, b"") and mti.outputs == wanted
    assert mti.state is MtiState.MEASURING


def test_a_line_that_is_too_slow_is_an_overflow() -> None:
    mti = device(9600)
    asked(mti, Mid.GOTO_CONFIG)
    replies = asked(mti, Mid.GOTO_MEASUREMENT)
    assert [(m.mid, m.data) for m in replies] == [(0x11, b""), (Mid.ERROR, b"\x29")]
    assert mti.state is MtiState.CONFIG


@pytest.mark.parametrize("woken", [True, False])
def test_waking_up(woken: bool) -> None:
    mti = device()
    asked(mti, Mid.GOTO_CONFIG)
    assert answer(mti, Mid.SET_BAUDRATE, b"\x00") == (0x19, b"")
    assert mti.baudrate == 115_200  # until it starts anew
    assert answer(mti, Mid.RESET) == (0x41, b"")
    assert mti.baudrate == 460_800 and mti.due_ns() == START_NS
    assert mti.receive(encode_message(Mid.GOTO_CONFIG, b""), 1) == b"" == mti.tick(START_NS - 1)
    assert mti.tick(START_NS) == encode_message(Mid.WAKE_UP, b"")
    if woken:
        assert asked(mti, Mid.WAKE_UP_ACK, now_ns=START_NS + 5) == []
        assert mti.state is MtiState.CONFIG and mti.due_ns() is None
    else:
        states = []
        for now_ns in (START_NS + WAKE_UP_NS - 1, START_NS + WAKE_UP_NS):
            assert mti.tick(now_ns) == b""
            states.append(mti.state)
        assert states == [MtiState.WAKING, MtiState.MEASURING]


def test_baud_rates_by_code() -> None:
    mti = device()
    asked(mti, Mid.GOTO_CONFIG)
    assert answer(mti, Mid.SET_BAUDRATE) == (0x19, b"\x02")
    assert answer(mti, Mid.SET_BAUDRATE, b"\x77") == (Mid.ERROR, b"\x20")


# --- the emulation, step by step --------------------------------------------------------------


class Host:
    """The other end of an emulated device's port, and the time."""

    def __init__(self, emulator: XsensEmulator) -> None:
        self.emulator = emulator
        self.now_ns = 5_000_000_000
        self.parser = XbusParser()
        self.came: list[tuple[int, XbusMessage]] = []
        self.source = emulator.start()
        self.emulator.step(self.now_ns)
        self.fd = os.open(
            self.source.source.partition(":")[2], os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY
        )
        tty.setraw(self.fd)
        attributes = termios.tcgetattr(self.fd)
        attributes[4] = attributes[5] = getattr(termios, f"B{self.emulator._device.baudrate}")
        termios.tcsetattr(self.fd, termios.TCSANOW, attributes)

    def run(self, ms: float) -> list[XbusMessage]:
        """Let time pass, step by step as the emulator asks; what came."""
        came = []
        until_ns = self.now_ns + round(ms * MS)
        while self.now_ns < until_ns:
            due_ns = self.emulator.step(self.now_ns)
            assert due_ns > self.now_ns
            self.now_ns = min(due_ns, until_ns)
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                continue
            came += self.parser.feed(data)
            self.came += [(self.now_ns, message) for message in came[len(self.came) :]]
        return came

    def ask(self, mid: Mid, data: bytes = b"") -> list[XbusMessage]:
        os.write(self.fd, encode_message(mid, data))
        return self.run(12)

    def configure(self, outputs: Outputs) -> list[XbusMessage]:
        """As a driver does; messages that come with the acknowledgement of GoToMeasurement."""
        self.ask(Mid.GOTO_CONFIG)
        self.ask(Mid.SET_OUTPUT_CONFIGURATION, encode_outputs(outputs))
        return self.ask(Mid.GOTO_MEASUREMENT)


@contextmanager
def hosted(
    *faults: Fault, scheme: str = "sim", address: str = "", **options: Any
) -> Iterator[Host]:
    checked = check_options(XsensDriver.options, options)
    emulator = XsensEmulator(SensorEntry("imu", "xsens", scheme, address, checked), faults, 3)
    host = Host(emulator)
    try:
        yield host
        os.close(host.fd)
    finally:
        emulator.stop()
        emulator.stop()


def counters(messages: list[XbusMessage]) -> list[int]:
    values = [decode_mtdata2(m.data) for m in messages if m.mid == MID_MTDATA2]
    return [v.packet_counter for v in values if v.packet_counter is not None]


def test_messages_leave_when_a_line_would_have_carried_them() -> None:
    with hosted() as host:
        host.configure(make_outputs(100, ["euler_angles"]))
        messages = [m for m in host.run(500) if m.mid == MID_MTDATA2]
        assert len(messages) == 50
        assert [decode_mtdata2(m.data).packet_counter for m in messages][:3] == [4, 5, 6]
        world = host.emulator.injected
        assert not world
        expected = ImuPackets(
            SimulatedImu(100.0, World("drive", 0)), make_outputs(100, ["euler_angles"])
        ).messages(4, 50)
        assert [encode_message(m.mid, m.data) for m in messages] == expected
        # The first whose time has come is 62 bytes later on its way out, at 115200 baud.
        due_ns = host.emulator.step(host.now_ns)
        assert (due_ns - 5_000_000_000) % (10 * MS) in (0, round(62 * 1e10 / 115_200))


def test_a_restart_counts_anew_as_it_was_configured() -> None:
    with hosted(Fault("reboot", at_s=0.2, duration_s=0.3)) as host:
        outputs = make_outputs(100, [])
        host.configure(outputs)
        host.run(240)
        came = host.run(1000)
        assert came[0].mid == Mid.WAKE_UP and counters(came)[:3] == [0, 1, 2]
        first = decode_mtdata2(came[1].data)
        assert first.data_ids == tuple(o.data_id for o in outputs)
        assert (first.sample_time_fine or 0) * TICK_NS < BOOT_NS
        # 0.3 s of absence, 0.1 s of starting, 0.5 s of waiting for WakeUpAck
        assert 85 <= host.emulator.injected["reboot"] <= 95


def test_a_log_with_real_messages(shared_data: Path) -> None:
    """Other messages, stray bytes: what goes out is what parses, byte for byte."""
    path = shared_data / "imu/mti_g710_1/output.bin"
    with hosted(scheme="file", address=str(path)) as host:
        came = host.configure(()) + host.run(2000)
        sent = b"".join(encode_message(m.mid, m.data) for m in came if m.mid == MID_MTDATA2)
        assert sent == path.read_bytes()


def test_logs_that_cannot_be_emulated(tmp_path: Path) -> None:
    path = tmp_path / "imu.bin"
    path.write_bytes(b"nothing")
    for address, message in ((path, "no MTData2 message"), (tmp_path / "gone", "No such file")):
        with (
            pytest.raises(SourceError, match=message),
            hosted(scheme="file", address=str(address)),
        ):
            pass


def test_the_receivers_time_of_week_is_in_ms() -> None:
    imu = SimulatedImu(20.0, World("drive"))
    weeks = [receiver_data(imu, t_ns).itow_ms for t_ns in (0, 1_000_000_000, 2_500_000_000)]
    assert weeks == [561_600_000, 561_601_000, 561_602_500]
