"""``mcap:PATH[#TOPIC]`` in the driver can: frames in bags of others, serialized by rosbags."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.typesys import get_types_from_msg

from drivers.can.driver import CanDriver
from drivers.kit.driver import Driver
from drivers.kit.runner import make_driver
from recorder.common.errors import FormatError, SourceError
from recorder.formats.bags.bag import Bag
from recorder.formats.ros2.codec import decode_message, encode_message
from recorder.formats.ros2.messages import CanFrame, FdFrame, Header
from recorder.perception.recordings import sensors_of
from tests.drivers.can.rig import frames
from tests.formats.bags.kit import SECOND, START_NS, STORE, Sent, cdr, header, write_mcap
from tests.support.devices import causes, play, times

FRAME, FD_FRAME = "can_msgs/msg/Frame", "ros2_socketcan_msgs/msg/FdFrame"
# The definitions of the packages; rosbags does not have them.
HEAD = "std_msgs/Header header\nuint32 id\n"
TEXTS = {
    FRAME: HEAD + "bool is_rtr\nbool is_extended\nbool is_error\nuint8 dlc\nuint8[8] data\n",
    FD_FRAME: HEAD + "bool is_extended\nbool is_error\nuint8 len\nuint8[<=64] data\n",
}


@pytest.fixture(autouse=True, scope="module")
def definitions() -> None:
    for name, text in TEXTS.items():
        if name not in STORE.types:
            STORE.register(get_types_from_msg(text, name))


def classic(k: int, **given: Any) -> Sent:
    t_ns = START_NS + k * 1_000_000
    values: dict[str, Any] = {
        "id": 0x100 + k, "is_rtr": False, "is_extended": False, "is_error": False, "dlc": 3,
        "data": np.array([1, 2, 3, 4, 5, 6, 7, k], np.uint8),
    }  # fmt: skip
    return cdr("/can/frames", FRAME, t_ns, header=header(t_ns, "can0"), **values | given)


def fd(k: int, data: bytes, length: int | None = None) -> Sent:
    t_ns, length = START_NS + k * 1_000_000, len(data) if length is None else length
    return cdr(
        "/can/fd", FD_FRAME, t_ns, header=header(t_ns, "can0"), id=0x1ABCDEF0, is_extended=True,
        is_error=False, len=length, data=np.frombuffer(data, np.uint8),
    )  # fmt: skip


def driver(path: Path, topic: str = "") -> Driver:
    address = f"{path}#{topic}" if topic else str(path)
    entry = {"name": "bus", "scheme": "mcap", "address": address, "options": {}, "pace": "max"}
    return make_driver(CanDriver, entry)


def played(path: Path, topic: str = "") -> tuple[Any, list[Any]]:
    return play(driver(path, topic))


def test_classic_frames_are_played(tmp_path: Path) -> None:
    sent = [classic(0), classic(1, is_extended=True, id=0x18FEF100), classic(2, is_rtr=True, dlc=8),
            classic(3, is_error=True, dlc=8), fd(4, b"\1")]  # fmt: skip
    write_mcap(tmp_path / "a.mcap", sent)
    spec, items = played(tmp_path / "a.mcap", "/can/frames")
    assert spec.channel("data").shape == (8,) and spec.settings["mcap_frame"] == "can0"
    assert frames(items) == [
        (0x100, 3, 0, b"\1\2\3\0\0\0\0\0"),
        (0x98FEF100, 3, 0, b"\1\2\3\0\0\0\0\0"),
        (0x40000102, 8, 0, bytes(8)),
        (0x20000103, 8, 0, b"\1\2\3\4\5\6\7\3"),
    ]
    assert times(items).tolist() == [START_NS + k * 1_000_000 for k in range(4)]


def test_frames_of_can_fd_are_played(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", [fd(0, bytes(range(48))), fd(1, b""), fd(2, b"\1\2\3", 2)])
    spec, items = played(tmp_path / "a.mcap")
    assert spec.channel("data").shape == (64,)
    assert frames(items) == [
        (0x9ABCDEF0, 48, 4, bytes(range(48)) + bytes(16)), (0x9ABCDEF0, 0, 4, bytes(64)),
        (0x9ABCDEF0, 2, 4, b"\1\2" + bytes(62)),
    ]  # fmt: skip


def test_a_damaged_message_is_counted(tmp_path: Path) -> None:
    bad = replace(classic(1), data=classic(1).data[:-1])
    write_mcap(tmp_path / "a.mcap", [classic(0), bad, classic(2)])
    _, items = played(tmp_path / "a.mcap")
    assert [row[0] for row in frames(items)] == [0x100, 0x102]
    assert causes(items) == [("corrupt", 1)]


def test_a_bag_is_imported_as_sensors(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", [classic(0), fd(1, b"\1")])
    with Bag(tmp_path / "a.mcap") as bag:
        found = sensors_of(bag)
    assert [(s.driver, s.topic) for s in found.sensors] == [
        ("can", "/can/fd"),
        ("can", "/can/frames"),
    ]
    assert len({s.name for s in found.sensors}) == 2


def test_two_topics_are_named(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", [classic(0), fd(1, b"\1")])
    with pytest.raises(SourceError, match="/can/fd"):
        driver(tmp_path / "a.mcap").open()


def test_messages_are_those_of_rosbags() -> None:
    head = Header(START_NS + SECOND // 3, "can0")
    first = CanFrame(head, 0x123, True, False, True, 5, b"12345678")
    read: Any = STORE.deserialize_cdr(b"".join(encode_message(FRAME, first)), FRAME)
    assert (read.id, read.is_rtr, read.is_extended, read.is_error, read.dlc) == (
        0x123, True, False, True, 5,
    )  # fmt: skip
    assert read.data.tobytes() == b"12345678"
    assert read.header.stamp.nanosec == head.stamp_ns % SECOND
    second = FdFrame(head, 0x1FFFFFFF, True, False, 20, bytes(range(20)))
    read = STORE.deserialize_cdr(b"".join(encode_message(FD_FRAME, second)), FD_FRAME)
    assert (read.id, read.is_extended, read.is_error, read.len) == (0x1FFFFFFF, True, False, 20)
    assert read.data.tobytes() == bytes(range(20))
    assert decode_message(FRAME, b"".join(encode_message(FRAME, first))) == first
    assert decode_message(FD_FRAME, b"".join(encode_message(FD_FRAME, second))) == second


def test_messages_that_cannot_be_are_refused() -> None:
    head = Header(START_NS, "")
    with pytest.raises(FormatError, match="9 bytes are no array of 8 bytes"):
        encode_message(FRAME, CanFrame(head, 1, False, False, False, 8, bytes(9)))
    with pytest.raises(FormatError, match="length 65 with 65 bytes"):
        encode_message(FD_FRAME, FdFrame(head, 1, False, False, 65, bytes(65)))
    whole = b"".join(encode_message(FD_FRAME, FdFrame(head, 1, False, False, 8, bytes(8))))
    longer = bytearray(whole)
    longer[whole.index(b"\x08")] = 9
    with pytest.raises(FormatError, match="length 9 with 8 bytes"):
        decode_message(FD_FRAME, bytes(longer))
