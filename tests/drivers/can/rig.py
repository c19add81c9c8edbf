"""What the tests of the driver for CAN share: drivers, logs by python-can, a stand-in of AF_CAN."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import can as python_can
import pytest

from drivers.can import connection as can_device
from drivers.can.driver import CanDriver
from drivers.can.frames import Frame, pack_frame
from drivers.kit.driver import Item
from tests.support import devices
from tests.support.devices import make_driver, read_until

WRITERS = {
    ".asc": python_can.ASCWriter,
    ".blf": python_can.BLFWriter,
    ".log": python_can.CanutilsLogWriter,
}
START_S = 1_700_000_000.0


driver_for = functools.partial(make_driver, CanDriver, "bus")


def played(path: Path, pace: str = "realtime", **options: Any) -> list[Item]:
    """All items of a log of frames alone."""
    return devices.play(driver_for("file", path, pace, **options))[1]


def read_frames(driver: CanDriver, count: int) -> list[Item]:
    """Items up to and with the sample that has frame number `count`."""
    return read_until(driver, lambda items: len(frames(items)) >= count)


def column(items: Sequence[Item], name: str, stream: str = "bus") -> list[Any]:
    """All values of a channel."""
    return list(devices.column(items, name, stream).tolist())


def times(items: Sequence[Item], stream: str = "bus") -> list[int]:
    return list(devices.times(items, stream).tolist())


def frames(items: Sequence[Item]) -> list[tuple[int, int, int, bytes]]:
    """Identifier, length, flags and whole data of every recorded frame."""
    columns = [column(items, name) for name in ("id", "len", "flags", "data")]
    return [(a, b, c, bytes(d)) for a, b, c, d in zip(*columns, strict=True)]


def message(k: int, **given: Any) -> python_can.Message:
    """A frame of python-can, at ms `k`."""
    values: dict[str, Any] = {
        "timestamp": START_S + k / 1000,
        "arbitration_id": 0x100,
        "is_extended_id": False,
        "channel": 0,
    }
    return python_can.Message(**values | given, check=True)


def write_log(path: Path, messages: Sequence[python_can.Message]) -> Path:
    """A log by python-can's own writer."""
    writer = WRITERS[path.suffix](path)
    for each in messages:
        writer.on_message_received(each)
    writer.stop()
    return path


class FakeCan:
    """What Linux does for CAN, on a UDP port of loopback: each datagram is a frame's structure.

    Stamps, batches and the count of drops are those of the real kernel.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.options: list[tuple[int, int, Any]] = []
        self.bound: list[str] = []
        self.has_can = True
        self.port = 0
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.interface("can0")
        monkeypatch.setattr(can_device, "INTERFACES", folder)
        monkeypatch.setattr(can_device.find_interface_fault, "__defaults__", (folder,))
        monkeypatch.setattr(can_device.is_fd_interface, "__defaults__", (folder,))
        monkeypatch.setattr("drivers.can.connection.socket.socket", self._socket)

    def interface(self, name: str, flags: int = 0x41, mtu: int = 16, kind: int = 280) -> None:
        place = self.folder / name
        place.mkdir(exist_ok=True)
        (place / "flags").write_text(f"{flags:#x}\n")
        (place / "mtu").write_text(f"{mtu}\n")
        (place / "type").write_text(f"{kind}\n")

    def _socket(self, family: int, kind: int, protocol: int = 0) -> Any:
        if family != socket.AF_CAN:
            return _REAL_SOCKET(family, kind, protocol)
        assert (kind, protocol) == (socket.SOCK_RAW, socket.CAN_RAW)
        if not self.has_can:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return _FakeSocket(self)

    def send(self, *sent: Frame) -> None:
        for frame in sent:
            self._out.sendto(pack_frame(frame), ("127.0.0.1", self.port))

    def close(self) -> None:
        self._out.close()


_REAL_SOCKET = socket.socket


class _FakeSocket(socket.socket):
    """A socket of AF_CAN: takes its options and its address, and is a UDP port."""

    def __init__(self, kernel: FakeCan) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self._kernel = kernel

    def setsockopt(self, *given: Any) -> None:
        if given[0] == 101:
            self._kernel.options.append(given)
        else:
            super().setsockopt(*given)

    def bind(self, address: Any) -> None:
        (name,) = address
        if not (self._kernel.folder / name).exists():
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        self._kernel.bound.append(name)
        super().bind(("127.0.0.1", 0))
        self._kernel.port = self.getsockname()[1]


@contextlib.contextmanager
def kernel_with_can(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCan]:
    made = FakeCan(folder, monkeypatch)
    try:
        yield made
    finally:
        made.close()
