"""Frames of CAN: the kernel's structures, held against python-can's SocketCAN and cantools."""

from __future__ import annotations

from typing import Any

import can as python_can
import numpy as np
import pytest
from can.interfaces.socketcan import constants
from can.interfaces.socketcan.socketcan import build_can_frame, dissect_can_frame
from hypothesis import given
from hypothesis import strategies as st

from drivers.can.errors import BusErrors
from drivers.can.frames import (
    ERROR,
    EXTENDED,
    FD,
    FD_MTU,
    PASSIVE,
    REMOTE,
    SENT,
    SWITCHED,
    Frame,
    collect_frames,
    find_fault,
    pack_frame,
    parse_frames,
)

FD_LENGTHS = (*range(9), 12, 16, 20, 24, 32, 48, 64)


def parse(*structures: bytes, width: int = 64, sent: bool = False) -> tuple[Any, list[int]]:
    rows = np.full((len(structures), 80), 0xEE, np.uint8)
    for k, data in enumerate(structures):
        rows[k, : len(data)] = np.frombuffer(data, np.uint8)
    sizes = np.array([len(data) for data in structures], np.int64)
    t_ns = np.arange(len(structures), dtype=np.int64)
    frames, kept = parse_frames(rows, sizes, t_ns, np.full(len(structures), sent), width)
    return frames, kept.tolist()


@st.composite
def messages(draw: st.DrawFn) -> python_can.Message:
    """Frames that python-can holds for valid."""
    extended, fd = draw(st.booleans()), draw(st.booleans())
    remote = not fd and draw(st.booleans())
    size = draw(st.sampled_from(FD_LENGTHS if fd else FD_LENGTHS[:9]))
    return python_can.Message(
        arbitration_id=draw(st.integers(0, 0x1FFFFFFF if extended else 0x7FF)),
        is_extended_id=extended,
        is_remote_frame=remote,
        is_fd=fd,
        bitrate_switch=fd and draw(st.booleans()),
        error_state_indicator=fd and draw(st.booleans()),
        dlc=size,
        data=None if remote else draw(st.binary(min_size=size, max_size=size)),
        check=True,
    )


def of_python_can(message: python_can.Message) -> Frame:
    number = message.arbitration_id | (EXTENDED if message.is_extended_id else 0)
    if message.is_remote_frame:
        return Frame(0, number | REMOTE, b"", 0, message.dlc)
    flags = FD * message.is_fd | SWITCHED * message.bitrate_switch
    return Frame(0, number, bytes(message.data), flags | PASSIVE * message.error_state_indicator)


@given(messages())
def test_structures_are_those_of_python_can(message: python_can.Message) -> None:
    frame = of_python_can(message)
    assert find_fault(frame) is None
    theirs = build_can_frame(message)
    frames, kept = parse(theirs)
    assert kept == [0]
    assert frames.id[0] == frame.id and frames.length[0] == message.dlc
    assert frames.flags[0] == frame.flags
    assert frames.data[0].tobytes() == frame.data.ljust(64, b"\0")
    number, size, flags, data = dissect_can_frame(pack_frame(frame))[:4]
    assert (number, size) == (frame.id, message.dlc)
    assert data[: len(frame.data)] == frame.data
    assert flags & 3 == frame.flags & 3


def test_constants_are_those_of_python_can() -> None:
    for ours, theirs in (
        (EXTENDED, "CAN_EFF_FLAG"), (REMOTE, "CAN_RTR_FLAG"), (ERROR, "CAN_ERR_FLAG"),
        (SWITCHED, "CANFD_BRS"), (PASSIVE, "CANFD_ESI"), (FD_MTU, "CANFD_MTU"),
    ):  # fmt: skip
        assert ours == getattr(constants, theirs), theirs


def test_what_is_left_in_a_row_is_no_data() -> None:
    """A short structure behind a long one, data behind the length, data of a request."""
    long = pack_frame(Frame(0, 1, b"\xff" * 64, FD))
    short = pack_frame(Frame(0, 2, b"\xff" * 8))[:4] + b"\3\0\0\0" + b"\xff" * 8
    request = pack_frame(Frame(0, 3 | REMOTE, b"", 0, 8))[:8] + b"\xff" * 8
    frames, _ = parse(long, short, request)
    assert [bytes(row).rstrip(b"\0") for row in frames.data] == [b"\xff" * 64, b"\xff" * 3, b""]
    assert frames.length.tolist() == [64, 3, 8] and frames.flags.tolist() == [FD, 0, 0]


def test_structures_that_are_none_give_no_frame() -> None:
    good = pack_frame(Frame(0, 7, b"\1"))
    fd = pack_frame(Frame(0, 9, bytes(64), FD))
    bad = [good[:15], good + b"\0", b"", fd[:71], fd + b"\0", good[:4] + b"\x09" + good[5:],
           fd[:4] + b"\x41" + fd[5:]]  # fmt: skip
    frames, kept = parse(good, *bad, fd)
    assert frames.id.tolist() == [7, 9] and kept == [0, 8]
    frames, kept = parse(good, fd, width=8)
    assert frames.id.tolist() == [7] and kept == [0], "CAN FD was not asked for"
    assert frames.data.shape == (1, 8)


def test_own_frames_are_marked_and_flags_of_classic_frames_are_none() -> None:
    odd = bytearray(pack_frame(Frame(0, 7, b"\1")))
    odd[5] = 0xFF  # padding of a classic structure
    frames, _ = parse(bytes(odd), sent=True)
    assert frames.flags.tolist() == [SENT]


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (Frame(0, 0x800), "the identifier 800 of more than 11 bits"),
        (Frame(0, 1, bytes(9)), "a frame of 9 bytes"),
        (Frame(0, 1 | REMOTE, b"", 0, 9), "a frame of 9 bytes"),
        (Frame(0, 1, bytes(65), FD), "a frame of 65 bytes"),
        (Frame(0, 1, bytes(9), FD), "a frame of CAN FD of 9 bytes"),
        (Frame(0, 1 | REMOTE, b"", FD, 8), "a frame of CAN FD of 8 bytes is a remote request"),
        (Frame(0, 1, b"", 0, -1), "a frame of 0 bytes"),
    ],
)
def test_what_no_bus_carries_is_named(frame: Frame, text: str) -> None:
    assert find_fault(frame) == text


def test_arrays_of_frames() -> None:
    frames = collect_frames([Frame(5, 1, b"\1"), Frame(6, 2 | REMOTE, b"", 0, 3)], 8)
    assert frames.t_ns.tolist() == [5, 6] and frames.length.tolist() == [1, 3]
    assert frames.data.tolist() == [[1, *[0] * 7], [0] * 8]
    part = frames.part(slice(1, 2))
    assert len(part) == 1 and part.id.tolist() == [2 | REMOTE]
    assert len(collect_frames([], 64)) == 0


# Error messages


def fed(*given: tuple[int, bytes]) -> BusErrors:
    errors = BusErrors()
    for number, data in given:
        errors.feed(number | ERROR, data)
    return errors


def test_data_frames_are_no_error_messages() -> None:
    errors = BusErrors()
    assert errors.feed(0x40, bytes(8)) is False
    assert errors.report() is None and errors.take_changed_state() is None


def test_each_class_is_counted() -> None:
    names = {
        0x1: "tx_timeouts", 0x2: "lost_arbitrations", 0x10: "transceiver_errors",
        0x20: "frames_without_ack", 0x40: "bus_offs", 0x80: "bus_errors", 0x100: "restarts",
    }  # fmt: skip
    for bit, name in names.items():
        assert fed((bit, bytes(8))).report() == {"error_frames": 1, name: 1}
    errors = fed((0x8, b"\0\0\x24" + bytes(5)), (0x88, b"\0\0\x04" + bytes(5)))
    assert errors.report() == {
        "error_frames": 2, "protocol_errors": 2, "bus_errors": 1, "stuff_errors": 2, "overloads": 1,
    }  # fmt: skip
    assert errors.report() is None, "counts are since the last report"


@pytest.mark.parametrize(
    ("number", "status", "state"),
    [
        (0x4, 0x04, "error-warning"),
        (0x4, 0x08, "error-warning"),
        (0x4, 0x10, "error-passive"),
        (0x4, 0x20, "error-passive"),
        (0x4, 0x24, "error-passive"),
        (0x4, 0x40, "error-active"),
        (0x40, 0, "bus-off"),
        (0x44, 0x20, "bus-off"),
        (0x100, 0, "error-active"),
        (0x4, 0x01, None),
        (0x8, 0x20, None),
    ],
)
def test_states_of_the_bus(number: int, status: int, state: str | None) -> None:
    errors = fed((number, bytes([0, status]) + bytes(6)))
    assert errors.state == state
    changed = errors.take_changed_state()
    assert (changed or {}).get("bus") == state and errors.take_changed_state() is None


def test_overflows_of_the_controller_are_losses() -> None:
    errors = BusErrors()
    assert errors.feed(ERROR | 0x4, b"\0\1") is True
    assert errors.feed(ERROR | 0x4, b"\0\2") is False, "what was to be sent"
    assert errors.feed(ERROR | 0x8, b"\0\1") is False, "no message of the controller"
    assert errors.report() == {
        "error_frames": 3, "rx_overflows": 1, "tx_overflows": 1, "protocol_errors": 1,
    }  # fmt: skip


def test_counters_of_the_controller() -> None:
    errors = fed((0x200, bytes(6) + b"\x05\x06"))
    assert (errors.tx_errors, errors.rx_errors) == (5, 6)
    errors.feed(ERROR | 0x4, b"\0\x10" + bytes(4) + b"\x00\x81")
    state = {"bus": "error-passive", "tx_errors": 0, "rx_errors": 0x81}
    assert errors.take_changed_state() == state
    errors.feed(ERROR | 0x80, bytes(6) + b"\x07\x07")
    assert (errors.tx_errors, errors.rx_errors) == (0, 0x81), "not of this class"
