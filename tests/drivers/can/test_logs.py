"""Logs of CAN as other software wrote them, and the signals that are decoded from them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import can as python_can
import cantools
import numpy as np
import pytest

from drivers.can.simulated import DATABASE
from drivers.kit.driver import Item, Lost, Sample, State
from recorder.common.errors import ConfigError, SourceError
from tests.drivers.can.rig import (
    WRITERS,
    column,
    driver_for,
    frames,
    message,
    played,
    times,
    write_log,
)
from tests.support.devices import opened, play, read_all

MS = 1_000_000


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
    spec, items = play(driver_for("file", str(path)))
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
    spec, (sample,) = play(driver_for("file", str(path), "max"))
    assert spec.channel("data").shape == (8,) and frames([sample]) == expected(sent, 8)


def test_can_fd_that_comes_late_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.can.played._AHEAD", 3)
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
    items = played(path, channel="2")
    assert [data[0] for *_, data in frames(items)] == [1, 3, 5]
    (state,) = [i for i in items if isinstance(i, State)]
    assert state.values == {"frames_of_other_channels": 3}


ASC = """\
date Mon Dec 6 11:21:13.000 am 2021
base hex  timestamps absolute
internal events logged
// version 9.0.0
Begin Triggerblock Mon Dec 6 11:21:13.000 am 2021
   0.000000 Start of measurement
  -0.020000 1  64              Rx   d 2 00 01
  -0.010000 1  Engine          Tx   d 2 00 02  Length = 228000 BitCount = 117 ID = 418119424x
   0.000000 1  64              Rx   d F 00 01 02 03 04 05 06 07
   0.001000 CAN 1 Status:chip status error active
   0.002000 1  Statistic: D 2 R 0 XD 0 XR 0 E 0 O 1 B 0.05%
   0.003000 1  J1939TP FEE3p 6 0 0 - Rx d 23 A0 0F A6 60 3B D1 40 1F DE 80 25 DF C0 2B E1
   0.004000 1  OverloadFrame
   0.005000 1  ErrorFrame Flags = 0xe CodeExt = 0x20a2 Code = 0x82 ID = 0 DLC = 0 Position = 5
   0.006000 CAN 1 Status:rx queue overrun
   0.007000 1  64              Rx   r 8
   0.008000 CANFD   1 Rx        300   Generic_Name_12    1 0 9 12 1 2 3 4 5 6 7 8 9 A B C   102203\
  133   303000 e0006659 46500250 4b140250 20011736 2001040d
   0.009000 CANFD   1 Tx        1C4D80A7x                0 0 2 2 8 12   102203  133   200040
   0.010000 CANFD   1 Rx        200                      0 0 8 0   102203  133   200010 0 0 0 0 0
   0.011000 CANFD   1 Rx ErrorFrame   Not Acknowledge error, dominant error flag fffe c7 31ca
   0.012000 CANFD   1 Rx        201                      0 1 0 0   102203  133   305000 0 0 0 0 0
   0.013000 1  64              Rx   d 2 00
   0.014000 1  6G              Rx   d 2 00 01
   0.015000 CANFD   1 Rx        64     0 0 8 8 11
   0,016000 1  64              Rx   d 2 00 01
   0.017000    SV: 3 0 1 ::CANoe::UnknownSysVar = "::CANoe::Simulation::VirtualMemory"
   0.018000 1  64              Rx   d 2 00 05
End TriggerBlock"""
"""Every kind of line that concerns CAN; lines as in Vector's description of the format."""


def test_every_line_of_an_asc_file_is_a_frame_or_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.asc"
    path.write_text(ASC)
    items = played(path, "max")
    got = [(number, size, flags, data[:size]) for number, size, flags, data in frames(items)]
    assert got == [
        (0x64, 2, 0, b"\0\1"),
        (0x80000000 | 418119424, 2, 128, b"\0\2"),
        (0x64, 8, 0, bytes(range(8))),
        (0x20000008, 8, 0, bytes((0, 0, 0x20, 0, 0, 0, 0, 0))),
        (0x20000080, 8, 0, bytes(8)),
        (0x20000004, 8, 0, bytes((0, 1, 0, 0, 0, 0, 0, 0))),
        (0x40000064, 8, 0, bytes(8)),
        (0x300, 12, 5, bytes(range(1, 13))),
        (0x9C4D80A7, 2, 128, b"\x08\x12"),
        (0x40000200, 8, 0, bytes(8)),
        (0x20000080, 8, 0, bytes(8)),
        (0x201, 0, 6, b""),
        (0x64, 2, 0, b"\0\5"),
    ]
    stamps = [-20, -10, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 18]
    assert times(items) == [ms * MS for ms in stamps]
    lost = [i for i in items if isinstance(i, Lost)]
    assert [(i.cause, i.count) for i in lost] == [("device", None), ("corrupt", 4)]
    assert lost[1].detail["reason"].startswith("line 22: is no frame of ASC: '1  64 ")
    last = [i.values for i in items if isinstance(i, State)][-1]
    assert last["other_events"] == {"CAN": 1, "Statistic": 1, "J1939TP": 1, "SV": 1}
    assert last["error_frames"] == 4 and last["overloads"] == 1


def blf_object(kind: int, t_ns: int, body: bytes, version: int = 1) -> bytes:
    """An object with its padding, by the structures of Vector's binlog_objects.h."""
    times = struct.pack("<LHHQ", 2, 0, 0, t_ns) + bytes(8 * (version - 1))
    size = 16 + len(times) + len(body)
    head = struct.pack("<4sHHLL", b"LOBJ", 16 + len(times), version, size, kind)
    return head + times + body + bytes(size % 4)


def blf_file(*objects: bytes) -> bytes:
    return struct.pack("<4sL", b"LOGG", 144).ljust(144, b"\0") + b"".join(objects)


def blf_container(data: bytes, method: int = 2) -> bytes:
    body = struct.pack("<HxxxxxxLxxxx", method, len(data))
    body += zlib.compress(data) if method == 2 else data
    return struct.pack("<4sHHLL", b"LOBJ", 16, 1, 16 + len(body), 10) + body + bytes(len(body) % 4)


def test_every_object_of_a_blf_file_is_a_frame_or_counted(tmp_path: Path) -> None:
    message = struct.pack("<HBBL8s", 1, 0, 2, 0x64, b"\1\2")
    fd_64 = struct.pack("<BBBxLLL16xHBBL", 1, 9, 12, 0x80000123, 0, 0x7000, 0, 1, 0, 0)
    objects = [
        blf_object(1, 0, message),
        blf_object(2, 1, struct.pack("<HHL", 1, 0, 0)),
        blf_object(3, 2, struct.pack("<HHL", 1, 0, 0)),
        blf_object(73, 3, struct.pack("<HHLBBBxLLH2x8s", 1, 0, 0, 0, 0, 0, 0, 0, 0, b"")),
        blf_object(104, 4, struct.pack("<BBBBHHHBxLLLLLLLHH", 1, *[0] * 16)),
        blf_object(91, 5, struct.pack("<LHH", 1, 1, 0)),
        blf_object(86, 6, message + bytes(8), version=2),
        blf_object(101, 7, fd_64 + bytes(range(10))),
        blf_object(4, 8, bytes(32)),
        blf_object(96, 9, bytes(48) + b"a marker"),
        blf_object(11, 10, bytes(32)),
        blf_object(1, 11, message[:6]),
        blf_object(1, 12, message, version=2).replace(b"\x28\0\2\0", b"\x28\0\3\0"),
        blf_object(126, 13, struct.pack("<LQLL", 0, 0, 5, 0)),
        blf_object(250, 14, bytes(8)),
        blf_object(1, 15, message),
    ]
    inner = b"".join(objects)
    path = tmp_path / "a.blf"
    # Objects may lie in the file itself, and continue in the next container.
    first, second = blf_container(inner[:333]), blf_container(inner[333:], method=0)
    path.write_bytes(blf_file(blf_object(1, 0, message), first, second))
    items = played(path, "max")
    got = [(number, size, flags, data[:size]) for number, size, flags, data in frames(items)]
    error, whole = (0x20000080, 8, 0, bytes(8)), (0x64, 2, 0, b"\1\2")
    assert got == [
        whole,
        whole,
        error,
        (0x20000008, 8, 0, bytes((0, 0, 0x20, 0, 0, 0, 0, 0))),
        error,
        error,
        (0x20000004, 8, 0, bytes((0, 1, 0, 0, 0, 0, 0, 0))),
        whole,
        (0x80000123, 12, 135, bytes(range(10)) + bytes(2)),
        whole,
    ]
    assert times(items) == [0, 0, 1, 2, 3, 4, 5, 6, 7, 15]
    lost = [(i.cause, i.count) for i in items if isinstance(i, Lost)]
    assert sorted(lost, key=str) == [("corrupt", 7), ("device", None)]
    last = [i.values for i in items if isinstance(i, State)][-1]
    assert last["other_events"] == {
        "CAN_STATISTIC": 1, "GLOBAL_MARKER": 1, "LIN_MESSAGE": 1, "object type 250": 1,
    }  # fmt: skip


def test_stamps_and_data_of_a_blf_file_are_as_its_fields_say(tmp_path: Path) -> None:
    """Stamps of 10 us; data that end where other data of the object begin."""
    message = blf_object(1, 7, struct.pack("<HBBL8s", 1, 0, 2, 0x64, b"\1\2"))
    coarse = message.replace(struct.pack("<LHH", 2, 0, 0), struct.pack("<LHH", 1, 0, 0))
    fields = struct.pack("<BBBxLLL16xHBBL", 1, 8, 8, 0x123, 0, 0x1000, 0, 0, 32 + 40 + 3, 0)
    extra = blf_object(101, 80_000, fields + b"\1\2\3" + b"\xff" * 9)
    path = tmp_path / "a.blf"
    path.write_bytes(blf_file(coarse, extra))
    items = played(path, "max")
    assert times(items) == [70_000, 80_000]
    assert frames(items)[1] == (0x123, 8, 4, b"\1\2\3".ljust(64, b"\0"))


def test_a_container_that_cannot_be_read_ends_the_log(tmp_path: Path) -> None:
    data = blf_object(1, 0, struct.pack("<HBBL8s", 1, 0, 2, 0x64, b"\1\2"))
    path = tmp_path / "a.blf"
    whole, broken = blf_container(data), bytearray(blf_container(data))
    broken[40:44] = b"\xff" * 4
    unknown = blf_container(data, method=7)
    for second, text in (
        (bytes(broken), "is damaged at byte 2"),
        (unknown, "compression 7 is not known"),
        (blf_container(data[:-8]), "is truncated in its last container"),
        (b"garbage of more than 8 bytes", "no object begins at byte"),
    ):
        path.write_bytes(blf_file(whole, second))
        with opened(driver_for("file", str(path), "max")) as driver:
            assert len(frames([driver.read() or State("", 0, {})])) == 1, text
            with pytest.raises(SourceError, match=text):
                driver.read()


@pytest.mark.parametrize("kind", [1, 86, 99])
def test_an_object_without_a_size_ends_the_log(tmp_path: Path, kind: int) -> None:
    """python-can would read it for ever.  The frames before the object are played."""
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
    with opened(driver_for("file", str(path), "max")) as driver:
        assert len(frames([driver.read() or State("", 0, {})])) == 2
        with pytest.raises(SourceError, match="is damaged: an object of 0 bytes in a container"):
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
        items = played(tmp_path / f"a.{name}", "max")
        told = [
            column([i], "data")[0][0] if isinstance(i, Sample) else (i.cause, i.count)
            for i in items
            if not isinstance(i, State)
        ]
        assert told == [1, ("corrupt", 2), told[2], ("corrupt", 1)] and told[2] in (2, 3), name
        lost = next(i for i in items if isinstance(i, Lost))
        assert lost.detail["reason"].startswith(place)


def test_a_first_line_that_is_damaged_refuses_nothing(tmp_path: Path) -> None:
    """As of a log that begins in the middle of a line."""
    (tmp_path / "a.log").write_text("00000.5) can0 100#00\n(1700000001.0) can0 100#01\n")
    lost, sample = played(tmp_path / "a.log", "max")
    assert isinstance(lost, Lost) and (lost.cause, lost.count) == ("corrupt", 1)
    assert [data[0] for *_, data in frames([sample])] == [1]


def test_error_messages_of_candump_keep_their_bytes(tmp_path: Path) -> None:
    """python-can reads the first one as a data frame of identifier 4."""
    path = tmp_path / "a.log"
    path.write_text(
        "(1700000000.000000) can0 20000004#0008000000000060\n"
        "(1700000000.000001) can0 20000040#0000000000000000\n"
    )
    items = played(path)
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
