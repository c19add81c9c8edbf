"""The driver for CAN: a stand-in of AF_CAN, a stand-in's port, logs, the simulated bus."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import can as python_can
import cantools
import numpy as np
import pytest

from drivers._devices.udp import Batch
from drivers._kit.driver import Item, Lost, Sample, State
from drivers._protocols.can_frames import ERROR, EXTENDED, FD, REMOTE, SENT, SWITCHED, Frame
from drivers.sim.can import DATABASE, STEERING_RATIO, WHEELBASE_M, SimulatedBus
from drivers.sim.world import World
from recorder.contract.errors import ConfigError, DeviceError, SourceError
from tests.drivers.can_rig import (
    WRITERS,
    FakeCan,
    column,
    driver_for,
    frames,
    kernel_with_can,
    message,
    read_until,
    times,
    write_log,
)
from tests.drivers.reading import opened, read_all

MS = 1_000_000


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCan]:
    folder = tmp_path / "net"
    folder.mkdir()
    monkeypatch.setattr("drivers._can.live._GATHER_S", 0.001)
    monkeypatch.setattr("drivers._can.live._GATHER_DECODED_S", 0.001)
    with kernel_with_can(folder, monkeypatch) as made:
        yield made


# An interface


def test_frames_of_an_interface_come_as_they_were(kernel: FakeCan) -> None:
    driver = driver_for("can", "can0", timeout_s=0)
    (spec,) = driver.open()
    assert [c.name for c in spec.channels] == ["id", "len", "flags", "data"]
    assert spec.channel("data").shape == (8,)
    before_ns = time.monotonic_ns()
    kernel.send(
        Frame(0, 0x123, b"\1\2\3"),
        Frame(0, 0x1ABCDEF0 | EXTENDED, bytes(range(8))),
        Frame(0, 0x7FF | REMOTE, b"", length=5),
        Frame(0, 0),
    )
    items = read_until(driver, 4)
    driver.close()
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
    got = frames(read_until(driver, 2))
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
        read_until(driver, 1)
        kernel.interface("can0", flags=0x40)

        def down(*_: object) -> Any:
            raise DeviceError("can0: Network is down")

        monkeypatch.setattr("drivers._devices.udp.SocketReceiver.receive", down)
        with pytest.raises(DeviceError, match="bus: can:can0: the interface can0 is down: sudo ip"):
            for _ in range(3):
                driver.read()


def test_a_bus_that_is_off_is_named(kernel: FakeCan) -> None:
    with opened(driver_for("can", "can0", timeout_s=0)) as driver:
        kernel.send(Frame(0, ERROR | 0x40, bytes(8)))
        read_until(driver, 1)
        source: Any = driver._source
        source._timeout_ns = 1
        with pytest.raises(DeviceError, match="can0 type can restart, or restart-ms 100"):
            for _ in range(3):
                driver.read()


def test_a_small_buffer_is_told_and_read_more_often(
    kernel: FakeCan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("drivers._can.live._GATHER_S", 0.02)
    monkeypatch.setattr("drivers._devices.udp._enlarge", lambda *_: 1000)
    driver = driver_for("can", "can0", timeout_s=0)
    for _ in range(2):
        with opened(driver):
            (warning,) = driver.warnings
            source: Any = driver._source
            assert source._gather_s == 0.005
    assert capsys.readouterr().err == warning + "\n", "told once"
    assert "bus: the kernel gives can0 a receive buffer of 0.0 MB instead of 8.0 MB" in warning
    assert "sudo sysctl -w net.core.rmem_max=8000000" in warning


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
    monkeypatch.setattr("drivers._can.live._FIRST_S", 0.05)
    monkeypatch.setattr("drivers._can.live._READ_S", 0.02)
    with pytest.raises(DeviceError, match="bus: can:can0: no frame arrives"):
        driver_for("can", "can0").open()


def batch(numbers: list[int], dropped: list[int], flags: list[int] | None = None) -> Batch:
    """Frames whose identifier is their time in us."""
    n = len(numbers)
    data = np.full((n, 80), 0xEE, np.uint8)
    data[:, :4] = np.array(numbers, "=u4").view(np.uint8).reshape(-1, 4)
    data[:, 4] = 0
    return Batch(
        data,
        np.full(n, 16, np.int64),
        np.array(numbers, np.int64) * 1000,
        np.zeros((n, 28), np.uint8),
        np.array(dropped, np.int64),
        False,
        np.array(flags or [0] * n, np.int32),
    )


def fake_batches(driver: Any, batches: list[Batch]) -> None:
    none = np.zeros(0, np.int64)
    empty = Batch(np.zeros((0, 80), np.uint8), none, none, np.zeros((0, 28), np.uint8), none)
    driver._source._receiver.receive = lambda: batches.pop(0) if batches else empty


def story(driver: Any, turns: int) -> list[Any]:
    """Identifiers of frames, and losses as (cause, count, time)."""
    told: list[Any] = []
    for _ in range(turns):
        item = driver.read()
        if isinstance(item, Sample):
            told += np.asarray(item.data["id"]).tolist()
        elif isinstance(item, Lost):
            told.append((item.cause, item.count, item.t_ns))
    return told


def test_what_the_kernel_dropped_is_lost_before_the_next_frame(kernel: FakeCan) -> None:
    with opened(driver_for("can", "can0", timeout_s=0)) as driver:
        wrong = batch([20, 21, 22], [6, 6, 7])
        wrong.sizes[1] = 17
        batches = [batch([1, 2, 6, 7], [0, 0, 3, 3]), batch([9, 12], [4, 6]), wrong]
        fake_batches(driver, batches)
        assert story(driver, 20) == [
            1, 2, ("overflow", 3, 6000), 6, 7,
            ("overflow", 1, 9000), 9, ("overflow", 2, 12000), 12,
            20, ("overflow", 1, 22000), 22, ("corrupt", 1, 22000),
        ]  # fmt: skip


def test_stamps_never_step_back_and_own_frames_are_marked(kernel: FakeCan) -> None:
    with opened(driver_for("can", "can0", timeout_s=0)) as driver:
        fake_batches(driver, [batch([5, 4, 6], [0] * 3, [4, 0, 0x804]), batch([3], [0])])
        items = [item for item in (driver.read() for _ in range(6)) if item is not None]
    assert times(items) == [5000, 5000, 6000, 6000]
    assert column(items, "flags") == [SENT, 0, SENT, 0]


def test_error_messages_are_recorded_counted_and_followed(
    kernel: FakeCan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers._can.live._TELL_NS", 0)
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
        items = read_until(driver, len(sent))
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


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(DeviceError, match=f"bus: can:{address}: cannot be bound: Address alre"):
            driver_for("can", address).open()


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:0", "can0/x", "a b", "a:70000", "waytoolongforaname"]
)
def test_an_address_of_another_form_is_named(address: str) -> None:
    with pytest.raises(SourceError, match="is not of the form can:INTERFACE or can:HOST:PORT"):
        driver_for("can", address).open()


# Logs


def drive() -> list[python_can.Message]:
    """Frames of all kinds that python-can writes into every one of its logs."""
    sent = [
        message(
            k,
            arbitration_id=0x123 if k % 2 else 0x1ABCDEF0,
            is_extended_id=not k % 2,
            data=bytes([k]) * (k % 9),
            is_rx=bool(k % 3),
        )
        for k in range(30)
    ]
    sent.append(message(31, is_fd=True, bitrate_switch=True, data=bytes(range(24))))
    sent.append(message(32, is_fd=True, error_state_indicator=True, data=b"\5" * 8))
    sent.append(message(40, is_error_frame=True))
    return sent


def expected(sent: list[python_can.Message], width: int) -> list[tuple[int, int, int, bytes]]:
    rows = []
    for each in sent:
        if each.is_error_frame:
            rows.append((0x20000080, 8, 0, bytes(width)))
            continue
        number = each.arbitration_id | (0x80000000 if each.is_extended_id else 0)
        number |= 0x40000000 if each.is_remote_frame else 0
        flags = 4 * each.is_fd + each.bitrate_switch + 2 * each.error_state_indicator
        flags += 0 if each.is_rx else 128
        rows.append((number, each.dlc, flags, bytes(each.data).ljust(width, b"\0")))
    return rows


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_log_is_played_as_python_can_wrote_it(tmp_path: Path, suffix: str) -> None:
    sent = drive()
    path = write_log(tmp_path / f"a{suffix}", sent)
    driver = driver_for("file", str(path))
    (spec,) = driver.open()
    items = read_all(driver)
    driver.close()
    assert spec.finite and spec.channel("data").shape == (64,)
    got = frames(items)
    want = expected(sent, 64)
    if suffix == ".log":  # it has no bytes of an error message
        want[-1] = (0x20000080, 0, 0, bytes(64))
    assert got == want
    stamps = np.array(times(items))
    since = stamps - stamps[0]
    ms = [round((each.timestamp - sent[0].timestamp) * 1000) for each in sent]
    # 250 ns is what a float of epoch seconds, which python-can has, resolves.
    assert np.abs(since - np.array(ms) * MS).max() <= (0 if suffix != ".blf" else 250)
    assert max(i.count for i in items if isinstance(i, Sample)) == 9, "8 ms at most in real time"


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_log_of_classic_frames_has_eight_bytes(tmp_path: Path, suffix: str) -> None:
    sent = [message(k, data=b"\1\2") for k in range(5)]
    sent.append(message(6, is_remote_frame=True, dlc=0))
    path = write_log(tmp_path / f"a{suffix}", sent)
    driver = driver_for("file", str(path), "max")
    (spec,) = driver.open()
    (sample,) = read_all(driver)
    driver.close()
    assert spec.channel("data").shape == (8,) and frames([sample]) == expected(sent, 8)


def test_can_fd_that_comes_late_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers._can.played._AHEAD", 3)
    sent = [*(message(k) for k in range(5)), message(9, is_fd=True, data=bytes(64))]
    path = write_log(tmp_path / "a.blf", sent)
    with opened(driver_for("file", str(path), "max")) as driver:
        assert len(frames([driver.read() or State("", 0, {})])) == 5
        with pytest.raises(SourceError, match=r"bus: file:.*a.blf: has a frame of CAN FD after"):
            driver.read()
    with opened(driver_for("file", str(path), "max", fd=True)) as driver:
        assert frames(read_all(driver)) == expected(sent, 64)


def test_a_channel_of_a_log(tmp_path: Path) -> None:
    sent = [message(k, channel=k % 2, data=bytes([k])) for k in range(6)]
    path = write_log(tmp_path / "a.asc", sent)
    with pytest.raises(SourceError, match="has frames of the channels 1, 2; the option channel"):
        driver_for("file", str(path)).open()
    with pytest.raises(SourceError, match=r"has no frame of channel 3, but of 1, 2$"):
        driver_for("file", str(path), channel="3").open()
    with opened(driver_for("file", str(path), channel="2")) as driver:
        items = read_all(driver)
    assert [data[0] for *_, data in frames(items)] == [1, 3, 5]
    (state,) = [i for i in items if isinstance(i, State)]
    assert state.values == {"frames_of_other_channels": 3}


@pytest.mark.parametrize("kind", [1, 86, 99])
def test_an_object_without_a_size_ends_the_log(tmp_path: Path, kind: int) -> None:
    """python-can would read it for ever: with frames, or without any where it skips the object."""
    objects = [
        struct.pack("<4sHHLL", b"LOBJ", 32, 1, size, number)
        + struct.pack("<LHHQ", 2, 0, 0, k)
        + struct.pack("<HBBL8s", 1, 0, 1, 0x100, bytes([k]))
        for k, (size, number) in enumerate([(48, 1), (48, 1), (0, kind)])
    ]
    head = struct.pack("<4sL", b"LOGG", 144).ljust(144, b"\0")
    data = struct.pack("<HxxxxxxLxxxx", 0, 144) + b"".join(objects)
    container = struct.pack("<4sHHLL", b"LOBJ", 16, 1, 16 + len(data), 10) + data
    path = tmp_path / "a.blf"
    path.write_bytes(head + container)
    with pytest.raises(SourceError, match="is damaged: an object of 0 bytes in a container"):
        driver_for("file", str(path)).open()
    whole = struct.pack("<4sHHLL", b"LOBJ", 16, 1, 16 + 16 + 96, 10) + data[:16] + data[16:112]
    path.write_bytes(head + whole + container)
    with opened(driver_for("file", str(path), "max")) as driver:
        assert len(frames([driver.read() or State("", 0, {})])) == 2
        with pytest.raises(SourceError, match="an object of 0 bytes"):
            driver.read()


def test_places_without_a_frame_are_counted(tmp_path: Path) -> None:
    """The frames behind them are played."""
    (tmp_path / "a.log").write_text(
        "(1.0) can0 100#01\n(1.1) can0 100#0\nnothing\n(1.2) can0 100#02\n(1.3) can0 FFF#\n"
    )
    (tmp_path / "a.asc").write_text(
        " 0.0 1 100 Rx d 1 01\n 0.1 1 FFF Rx d 0\n 0.1 1 100 Rx d 2 01\n 0.2 1 100 Rx d 1 02\n"
        " 0.3 1 FFF Rx d 0\n"
    )
    sent = [message(k, data=bytes([k])) for k in (1, 2, 3)]
    sent[1].arbitration_id = 0x800
    write_log(tmp_path / "a.blf", [sent[0], sent[1], sent[1], sent[2], sent[1]])
    for name, place in (("log", "line 2"), ("asc", "line 2"), ("blf", "byte ")):
        with opened(driver_for("file", str(tmp_path / f"a.{name}"), "max")) as driver:
            items = read_all(driver)
        told = [
            column([i], "data")[0][0] if isinstance(i, Sample) else (i.cause, i.count)
            for i in items
            if not isinstance(i, State)
        ]
        assert told == [1, ("corrupt", 2), told[2], ("corrupt", 1)] and told[2] in (2, 3), name
        lost = next(i for i in items if isinstance(i, Lost))
        assert lost.detail["reason"].startswith(place)


def test_error_messages_of_candump_keep_their_bytes(tmp_path: Path) -> None:
    """python-can reads the first one as a data frame of identifier 4."""
    path = tmp_path / "a.log"
    path.write_text(
        "(1700000000.000000) can0 20000004#0008000000000060\n"
        "(1700000000.000001) can0 20000040#0000000000000000\n"
    )
    with opened(driver_for("file", str(path))) as driver:
        items = read_all(driver)
    assert [row[0] for row in frames(items)] == [0x20000004, 0x20000040]
    states = [i.values for i in items if isinstance(i, State)]
    assert states == [
        {"bus": "error-warning", "tx_errors": 0, "rx_errors": 96},
        {"bus": "bus-off", "tx_errors": 0, "rx_errors": 96},
        {"error_frames": 2, "warnings": 1, "bus_offs": 1},
    ]


@pytest.mark.parametrize("head", ["", "base hex  timestamps absolute\n", "// a\n\n", "date x\n"])
def test_an_asc_file_without_its_header_has_all_frames(tmp_path: Path, head: str) -> None:
    path = tmp_path / "a.asc"
    path.write_text(f"{head} 0.001 1  123  Rx  d 1 05\n 0.002 1  123  Rx  d 1 06\n")
    with opened(driver_for("file", str(path), "max")) as driver:
        assert [data[0] for *_, data in frames(read_all(driver))] == [5, 6]


def test_the_whole_frames_of_a_damaged_log_are_played(tmp_path: Path) -> None:
    for suffix in WRITERS:
        path = write_log(tmp_path / f"a{suffix}", [message(k, data=b"\1") for k in range(9)])
        whole = path.read_bytes()
        path.write_bytes(whole[: whole.rindex(b"01") + 1] if suffix != ".blf" else whole[:-5])
        with opened(driver_for("file", str(path), "max")) as driver:
            items: list[Item | None] = []
            with pytest.raises(SourceError, match=rf"bus: file:{path}: .*is truncated"):
                while True:
                    items.append(driver.read())
        assert len(frames([i for i in items if i is not None])) == (8 if suffix != ".blf" else 9)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.log", b"", "is empty"),
        ("a.log", b"\n\n", "has no frame"),
        ("a.log", b"no log\n", "line 1: is no frame of candump: 'no log'"),
        ("a.log", b"(1.0) can0 123#0102030405060708090A\n", "line 1: is no frame of candump"),
        ("a.log", b"(1.0) can0 FFF#00\n", "line 1: is no frame of candump"),
        ("a.asc", b"nothing\n", "has no frame"),
        ("a.asc", b"date x\n0.1 1 20000000x Rx d 0\n", "line 2: has the identifier 20000000"),
        ("a.blf", b"nothing\n", "is no BLF"),
        ("a.txt", b"nothing\n", "is no log of a kind that is read: .asc, .blf, .log"),
        (
            "a.asc",
            b"base hex  timestamps relative\nno internal events logged\n0.1 1 123 Rx d 1 00\n",
            "has stamps that are relative to the line before",
        ),
    ],
)
def test_what_is_no_log_is_named(tmp_path: Path, name: str, data: bytes, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SourceError, match=rf"bus: file:.*{name}: {text}"):
        driver_for("file", str(path)).open()


# Signals


def test_signals_are_streams_of_their_own(tmp_path: Path) -> None:
    database = cantools.database.load_file(DATABASE)
    motion = database.get_message_by_name("VehicleMotion")
    service = database.get_message_by_name("Service")
    sent = []
    for k in range(20):
        values = {
            "Speed": k * 1.5, "YawRate": -k / 1000, "LongitudinalAcceleration": -0.5, "Counter": k,
        }  # fmt: skip
        sent.append(message(2 * k, arbitration_id=200, data=motion.encode(values)))
        page = {"Page": 1, "UpTime": k} if k % 2 else {"Page": 0, "OutsideTemperature": -3.5}
        sent.append(message(2 * k + 1, arbitration_id=800, data=service.encode(page)))
    sent.append(message(50, arbitration_id=200, data=b"\1\0"))
    sent.append(message(51, arbitration_id=200, is_remote_frame=True, dlc=8))
    path = write_log(tmp_path / "a.blf", sent)
    chosen = ["VehicleMotion.Speed", "YawRate", "Service.*"]
    driver = driver_for("file", str(path), dbc=str(DATABASE), signals=chosen)
    specs = {spec.name: spec for spec in driver.open()}
    items = read_all(driver)
    driver.close()
    assert list(specs) == ["bus", "bus_service", "bus_vehicle_motion"]
    units = {c.name: c.unit for c in specs["bus_vehicle_motion"].channels}
    assert units == {"speed": "m/s", "yaw_rate": "rad/s"}
    assert specs["bus"].settings["dbc"] == "vehicle.dbc"
    speed = column(items, "speed", "bus_vehicle_motion")
    assert speed[:20] == [k * 150 * 0.01 for k in range(20)] and speed[20] == 0.01
    assert len(speed) == 21, "a request has no signal"
    rates = column(items, "yaw_rate", "bus_vehicle_motion")
    assert rates[:20] == pytest.approx([-k / 1000 for k in range(20)]) and np.isnan(rates[20])
    temperatures = column(items, "outside_temperature", "bus_service")
    assert temperatures[::2] == [-3.5] * 10 and np.isnan(temperatures[1::2]).all()
    assert column(items, "up_time", "bus_service")[1::2] == list(range(1, 20, 2))
    assert len(frames(items)) == 42, "all frames are kept"
    (state,) = [i for i in items if isinstance(i, State)]
    assert state.values == {"frames_too_short": {"VehicleMotion": 1}}
    raw = [t for t, n in zip(times(items), column(items, "id"), strict=True) if n == 200]
    assert times(items, "bus_vehicle_motion") == raw


@pytest.mark.parametrize(
    ("options", "key", "text"),
    [
        ({"signals": ["a"]}, "signals", "needs dbc"),
        ({"dbc": DATABASE}, "signals", "names no signal to decode"),
        ({"dbc": "/gone.dbc", "signals": ["*"]}, "dbc", "/gone.dbc: No such file"),
        ({"dbc": DATABASE, "signals": ["Sped"]}, "signals", r"no signal 'Sped' \(did you mean 'Sp"),
        ({"dbc": DATABASE, "signals": ["Brake"]}, "signals", r"Brake\.\* chooses the message's"),
        ({"dbc": DATABASE, "signals": ["Brak.*"]}, "signals", "no message 'Brak' .did you mean 'B"),
        ({"dbc": DATABASE, "signals": ["Brake.x"]}, "signals", "'Brake' has no signal 'x'"),
    ],
)
def test_signals_that_cannot_be_decoded_are_named(
    tmp_path: Path, options: dict[str, Any], key: str, text: str
) -> None:
    path = write_log(tmp_path / "a.log", [message(0)])
    options = {k: str(v) if k == "dbc" else v for k, v in options.items()}
    with pytest.raises(ConfigError, match=text) as error:
        driver_for("file", str(path), **options).open()
    assert error.value.key == f"bus.{key}"


# The simulated bus


def test_the_simulated_bus_tells_the_worlds_truth() -> None:
    """Decoded by cantools, from the shipped database, of the raw frames."""
    database = cantools.database.load_file(DATABASE)
    driver = driver_for("sim", "", fd=True, signals=["*"])
    specs = {spec.name for spec in driver.open()}
    items: list[Item] = []
    while not times(items) or times(items)[-1] < 12_000 * MS:
        item = driver.read()
        assert item is not None
        items.append(item)
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
    for start_ms in range(0, 60_000, 500):
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
    assert max(pressures) > 10 and len(ups) > 20


def test_filler_raises_the_rate() -> None:
    driver = driver_for("sim", "", rate=8000)
    (spec,) = driver.open()
    items: list[Item] = []
    while not times(items) or times(items)[-1] < 1000 * MS - 1:
        item = driver.read()
        assert item is not None
        items.append(item)
    driver.close()
    inside = [t for t in times(items) if t < 1000 * MS]
    assert spec.rate_hz == 8000.0 and abs(len(inside) - 8000) <= 5
    assert times(items) == sorted(times(items))
    filler = [
        int.from_bytes(data, "little")
        for number, _, _, data in frames(items)
        if 0x400 <= number < 0x440
    ]
    assert filler == list(range(len(filler)))
