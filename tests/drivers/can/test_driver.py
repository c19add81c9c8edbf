"""The driver for CAN: a stand-in of AF_CAN, a stand-in's port, the simulated bus."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cantools
import numpy as np
import pytest

from drivers.can.frames import ERROR, EXTENDED, FD, REMOTE, SENT, SWITCHED, Frame
from drivers.can.simulated import DATABASE, STEERING_RATIO, WHEELBASE_M, SimulatedBus
from drivers.kit.driver import Driver, Item, Lost, State
from drivers.world import World
from recorder.common.errors import DeviceError, SourceError
from tests.drivers.can.rig import (
    FakeCan,
    column,
    driver_for,
    frames,
    kernel_with_can,
    read_frames,
    times,
)
from tests.drivers.test_datagram_devices import KINDS, feed, story
from tests.support.devices import opened, read_item, samples, streaming

MS = 1_000_000


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCan]:
    folder = tmp_path / "net"
    folder.mkdir()
    monkeypatch.setattr("drivers.can.live._GATHER_S", 0.001)
    monkeypatch.setattr("drivers.can.live._GATHER_DECODED_S", 0.001)
    with kernel_with_can(folder, monkeypatch) as made:
        yield made


# An interface


def test_frames_of_an_interface_come_as_they_were(kernel: FakeCan) -> None:
    with streaming(driver_for("can", "can0", timeout_s=0)) as (driver, spec):
        assert [c.name for c in spec.channels] == ["id", "len", "flags", "data"]
        assert spec.channel("data").shape == (8,)
        before_ns = time.monotonic_ns()
        kernel.send(
            Frame(0, 0x123, b"\1\2\3"),
            Frame(0, 0x1ABCDEF0 | EXTENDED, bytes(range(8))),
            Frame(0, 0x7FF | REMOTE, b"", length=5),
            Frame(0, 0),
        )
        items = read_frames(driver, 4)
    assert frames(items) == [
        (0x123, 3, 0, b"\1\2\3\0\0\0\0\0"),
        (0x9ABCDEF0, 8, 0, bytes(range(8))),
        (0x400007FF, 5, 0, bytes(8)),
        (0, 0, 0, bytes(8)),
    ]
    stamps = times(items)
    assert stamps == sorted(stamps) and stamps[0] >= before_ns - MS
    assert stamps[-1] <= time.monotonic_ns() + MS
    state = items[0]
    assert isinstance(state, State) and state.lasting
    assert (state.values["address"], state.values["fd"]) == ("can0", False)
    assert kernel.bound == ["can0"]
    assert kernel.options == [(101, 2, struct.pack("=I", 0x1FFFFFFF))], "all error messages"


def test_an_interface_of_can_fd_gives_64_bytes(kernel: FakeCan) -> None:
    kernel.interface("can0", mtu=72)
    driver = driver_for("can", "can0", timeout_s=0)
    (spec,) = driver.open()
    assert spec.channel("data").shape == (64,)
    assert kernel.options[1:] == [(101, 5, 1)]
    kernel.send(Frame(0, 5, bytes(range(48)), FD | SWITCHED), Frame(0, 6, b"\xff"))
    got = frames(read_frames(driver, 2))
    driver.close()
    assert got == [
        (5, 48, 5, bytes(range(48)) + bytes(16)),
        (6, 1, 0, b"\xff" + bytes(63)),
    ]


def test_can_fd_can_be_refused(kernel: FakeCan) -> None:
    kernel.interface("can0", mtu=72)
    driver = driver_for("can", "can0", timeout_s=0, fd=False)
    (spec,) = driver.open()
    driver.close()
    assert spec.channel("data").shape == (8,) and len(kernel.options) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"flags": 0x40}, r"the interface can0 is down: sudo ip link set can0 up type can bitrate"),
        ({"kind": 1}, r"the interface can0 is no CAN interface \(type 1\)"),
    ],
)
def test_an_interface_that_cannot_be_used_is_named(
    kernel: FakeCan, change: dict[str, int], text: str
) -> None:
    kernel.interface("can0", **change)
    with pytest.raises(DeviceError, match=rf"bus: can:can0: {text}"):
        driver_for("can", "can0").open()


def test_an_interface_that_is_missing_is_named(kernel: FakeCan) -> None:
    kernel.interface("eth0", kind=1)
    text = "bus: can:can7: no interface can7: the CAN interfaces are can0$"
    with pytest.raises(DeviceError, match=text):
        driver_for("can", "can7").open()
    with pytest.raises(DeviceError, match="sudo ip link add vcan0 type vcan"):
        driver_for("can", "vcan0").open()


def test_a_kernel_without_can_is_named(kernel: FakeCan) -> None:
    kernel.has_can = False
    with pytest.raises(DeviceError, match="bus: can:can0: no CAN socket: Address family not supp"):
        driver_for("can", "can0").open()


def test_an_interface_that_goes_down_is_lost(
    kernel: FakeCan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells every socket of it by ENETDOWN."""
    with opened(driver_for("can", "can0", timeout_s=0)) as driver:
        kernel.send(Frame(0, 1))
        read_frames(driver, 1)
        kernel.interface("can0", flags=0x40)

        def down(*_: object) -> Any:
            raise DeviceError("can0: Network is down")

        monkeypatch.setattr("drivers.kit.udp_socket.SocketReceiver.receive", down)
        with pytest.raises(DeviceError, match="bus: can:can0: the interface can0 is down: sudo ip"):
            for _ in range(3):
                driver.read()


def test_a_bus_that_is_off_is_named(kernel: FakeCan) -> None:
    with opened(driver_for("can", "can0", timeout_s=0)) as driver:
        kernel.send(Frame(0, ERROR | 0x40, bytes(8)))
        read_frames(driver, 1)
        source: Any = driver._source
        source._timeout_ns = 1
        with pytest.raises(DeviceError, match="can0 type can restart, or restart-ms 100"):
            for _ in range(3):
                driver.read()


def test_a_small_buffer_is_told_and_read_more_often(
    kernel: FakeCan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("drivers.can.live._GATHER_S", 0.02)
    monkeypatch.setattr("drivers.kit.udp_socket._enlarge", lambda *_: 1000)
    with opened(driver_for("can", "can0", timeout_s=0)) as driver:
        source: Any = driver._source
        assert source._gather_s == 0.005
    warning = capsys.readouterr().err
    assert "bus: the kernel gives can0 a receive buffer of 0.0 MB instead of 8.0 MB" in warning


def test_the_database_is_read_once(
    kernel: FakeCan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A device that is absent is tried again and again."""
    path = tmp_path / "a.dbc"
    path.write_bytes(DATABASE.read_bytes())
    driver = driver_for("can", "can0", timeout_s=0, dbc=str(path), signals=["Brake.*"])
    with opened(driver):
        pass
    path.unlink()
    assert [spec.name for spec in driver.open()] == ["bus", "bus_brake"]
    driver.close()


def test_silence_ends_the_bus(kernel: FakeCan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.kit.socket_source._FIRST_S", 0.05)
    monkeypatch.setattr("drivers.can.live._READ_S", 0.02)
    with pytest.raises(DeviceError, match="bus: can:can0: no frame arrives"):
        driver_for("can", "can0").open()


def test_a_structure_of_another_length_is_lost_and_own_frames_are_marked(kernel: FakeCan) -> None:
    flags = np.array([4, 0, 0x804, 0], np.int32)
    batch = replace(KINDS["can"].batch([20, 21, 22, 23], [0] * 4), flags=flags)
    batch.sizes[1] = 17
    with opened(driver_for("can", "can0", timeout_s=0)) as driver:
        items = feed(driver, batch)
    assert story(items, "data") == [20, 22, 23, ("corrupt", 1, 23000)]
    assert column(items, "flags") == [SENT, SENT, 0]


def test_error_messages_are_recorded_counted_and_followed(
    kernel: FakeCan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.can.live.TELL_NS", 0)
    overflow = Frame(0, ERROR | 0x204, bytes([0, 1 | 4, 0, 0, 0, 0, 3, 97]))
    sent = [
        Frame(0, 0x10, b"\1"),
        overflow,
        Frame(0, ERROR | 0x4, bytes([0, 0x10, 0, 0, 0, 0, 0, 130])),
        Frame(0, ERROR | 0x40, bytes(8)),
        Frame(0, ERROR | 0x100, bytes(8)),
        Frame(0, ERROR | 0x2, b"\7" + bytes(7)),
    ]
    with opened(driver_for("can", "can0", timeout_s=0)) as driver:
        kernel.send(*sent)
        items = read_frames(driver, len(sent))
        while not any(isinstance(i, State) and "error_frames" in i.values for i in items):
            if (item := driver.read()) is not None:
                items.append(item)
    assert [row[0] for row in frames(items)] == [frame.id for frame in sent]
    assert frames(items)[1][3] == overflow.data
    states = [i for i in items if isinstance(i, State)]
    assert [s.values for s in states if s.lasting][1:] == [
        {"bus": "error-warning", "tx_errors": 3, "rx_errors": 97},
        {"bus": "error-passive", "tx_errors": 0, "rx_errors": 130},
        {"bus": "bus-off", "tx_errors": 0, "rx_errors": 130},
        {"bus": "error-active", "tx_errors": 0, "rx_errors": 130},
    ]
    assert [s.values for s in states if not s.lasting] == [
        {
            "error_frames": 5, "rx_overflows": 1, "warnings": 1, "error_passives": 1,
            "bus_offs": 1, "restarts": 1, "lost_arbitrations": 1,
        }
    ]  # fmt: skip
    lost = [(i.cause, i.count) for i in items if isinstance(i, Lost)]
    assert lost == [("device", None)], "the controller does not tell how many"


# A stand-in's port


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:0", "can0/x", "a b", "a:70000", "waytoolongforaname"]
)
def test_an_address_of_another_form_is_named(address: str) -> None:
    with pytest.raises(SourceError, match="is not of the form can:INTERFACE or can:HOST:PORT"):
        driver_for("can", address).open()


# The simulated bus


def read_to(driver: Driver, items: list[Item], t_ns: int) -> None:
    """Take the items of a simulated bus up to and with the batch that reaches that time."""
    while not any(i.t_ns[-1] >= t_ns for i in samples(items[-1:], "bus")):
        item = read_item(driver)
        assert item is not None
        items.append(item)


def test_the_simulated_bus_tells_the_worlds_truth() -> None:
    """Decoded by cantools, from the shipped database, of the raw frames."""
    database = cantools.database.load_file(DATABASE)
    driver = driver_for("sim", "", fd=True, signals=["*"])
    specs = {spec.name for spec in driver.open()}
    items: list[Item] = []
    read_to(driver, items, 6_000 * MS)
    driver.close()
    assert len(specs) == 7
    rows = zip(times(items), frames(items), strict=True)
    decoded = [
        (t_ns / 1e9, database.decode_message(number & 0x1FFFFFFF, data[:length]))
        for t_ns, (number, length, _, data) in rows
    ]
    world = World("drive", 0).trajectory

    def compare(name: str, truth: Any, step: float) -> None:
        t_s = np.array([t for t, values in decoded if name in values])
        got = np.array([float(values[name]) for _, values in decoded if name in values])
        assert len(got) > 100 and np.abs(got - truth(t_s)).max() <= step / 2 + 1e-9

    def speed(t_s: Any) -> Any:
        return np.linalg.norm(world.motion(t_s).velocity_m_s, axis=1)

    def yaw_rate(t_s: Any) -> Any:
        return world.motion(t_s).angular_rate_rad_s[:, 2]

    compare("Speed", speed, 0.01)
    compare("YawRate", yaw_rate, 0.0001)
    compare("PositionEast", lambda t_s: world.pose(t_s)[0][:, 0], 0.0)
    along = ("LongitudinalAcceleration", 0.001)
    compare(along[0], lambda t_s: np.gradient(speed(t_s), t_s), along[1] + 0.02)
    moving = [(t, v) for t, v in decoded if "RoadWheelAngle" in v and speed(np.array([t]))[0] > 1]
    for t_s, values in moving[::50]:
        at = np.array([t_s])
        angle = np.arctan(WHEELBASE_M * yaw_rate(at)[0] / speed(at)[0])
        assert values["RoadWheelAngle"] == pytest.approx(angle, abs=1e-4)
        turned = float(values["SteeringWheelAngle"])
        assert turned == pytest.approx(np.degrees(angle) * STEERING_RATIO, abs=0.1)
    for name, channel in (("Speed", "speed"), ("YawRate", "yaw_rate")):
        truth = [values[name] for _, values in decoded if name in values]
        got = column(items, channel, "bus_vehicle_motion")
        assert got == truth[: len(got)] and len(got) >= len(truth) - 2


def test_wheels_brake_and_pages_tell_the_worlds_truth() -> None:
    """Over a minute, with corners to both sides and stops; decoded by cantools."""
    database = cantools.database.load_file(DATABASE)
    bus = SimulatedBus({"rate": None, "fd": False, "seed": 0, "scene": "drive"})
    world = World("drive", 0).trajectory
    turns, pressures, ups = [], [], []
    for start_ms in range(0, 60_000, 1500):
        made = bus.frames(start_ms * MS, (start_ms + 100) * MS)
        rows = zip(made.t_ns.tolist(), made.id.tolist(), made.length, made.data, strict=True)
        for t_ns, number, length, data in rows:
            name = database.get_message_by_frame_id(number & 0x1FFFFFFF).name
            values: Any = database.decode_message(
                number & 0x1FFFFFFF, data[:length].tobytes(), decode_choices=False
            )
            at = world.motion(np.array([t_ns / 1e9]))
            ahead = at.rotation[0, :, 0]
            speed, acceleration = at.velocity_m_s[0] @ ahead, at.acceleration_m_s2[0] @ ahead
            if name == "WheelSpeeds":
                rate = at.angular_rate_rad_s[0, 2]
                turns.append(rate)
                for wheel, x, y in (
                    ("FrontLeft", 2.8, 0.8), ("FrontRight", 2.8, -0.8),
                    ("RearLeft", 0.0, 0.8), ("RearRight", 0.0, -0.8),
                ):  # fmt: skip
                    truth = np.hypot(speed - rate * y, rate * x) * 3.6
                    assert values[wheel] == pytest.approx(truth, abs=0.006)
            elif name == "Brake":
                pressures.append(values["BrakePressure"])
                assert pressures[-1] == pytest.approx(max(0.0, -12 * acceleration), abs=0.051)
                assert values["BrakePedal"] == (acceleration < -0.2)
            elif name == "Service" and values["Page"] == 1:
                ups.append(values["UpTime"])
                assert ups[-1] == pytest.approx(t_ns / 1e9, abs=0.001)
            elif name == "Service":
                assert values["OutsideTemperature"] == 21.5
    assert min(turns) < -0.1 and max(turns) > 0.1, "corners to both sides"
    assert max(pressures) > 10 and len(ups) > 5


def test_filler_raises_the_rate() -> None:
    with streaming(driver_for("sim", "", rate=8000)) as (driver, spec):
        items: list[Item] = []
        read_to(driver, items, 1000 * MS - 1)
    inside = [t for t in times(items) if t < 1000 * MS]
    assert spec.rate_hz == 8000.0 and abs(len(inside) - 8000) <= 5
    assert times(items) == sorted(times(items))
    filler = [
        int.from_bytes(data, "little")
        for number, _, _, data in frames(items)
        if 0x400 <= number < 0x440
    ]
    assert filler == list(range(len(filler)))
