"""Frames of a CAN bus: the kernel's structures, and arrays of frames.

``struct can_frame`` and ``struct canfd_frame`` are those of linux/can.h.  Identifiers keep their
flags (`EXTENDED`, `REMOTE`, `ERROR`) in bits 29 to 31, as in the kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

EXTENDED: Final = 0x8000_0000
"""Flag of an identifier of 29 bits (CAN_EFF_FLAG)."""
REMOTE: Final = 0x4000_0000
"""Flag of a remote transmission request (CAN_RTR_FLAG): its length is the requested one."""
ERROR: Final = 0x2000_0000
"""Flag of an error message of the interface (CAN_ERR_FLAG)."""
ID_MASK: Final = 0x1FFF_FFFF
STANDARD_MASK: Final = 0x7FF

SWITCHED, PASSIVE, FD, SENT = 0x01, 0x02, 0x04, 0x80
"""Flags of a frame: CANFD_BRS, CANFD_ESI and CANFD_FDF of linux/can.h, and ours: this machine sent
the frame."""

CLASSIC_BYTES: Final = 8
FD_BYTES: Final = 64
CLASSIC_MTU: Final = 16
FD_MTU: Final = 72
_HEAD: Final = struct.Struct("=IBB2x")
_FD_LENGTHS: Final = (*range(9), 12, 16, 20, 24, 32, 48, 64)


class Frame(NamedTuple):
    """One frame.

    Attributes:
        t_ns: its time, ns on any time base.
        id: identifier with its flags.
        data: up to 8 bytes, or 64 of CAN FD.
        flags: `SWITCHED`, `PASSIVE`, `FD`, `SENT`.
        length: of a remote request; else None: that of the data.
    """

    t_ns: int
    id: int
    data: bytes = b""
    flags: int = 0
    length: int | None = None

    @property
    def size(self) -> int:
        """The frame's data length code in bytes."""
        return len(self.data) if self.length is None else self.length


class Logged(NamedTuple):
    """A frame of a log, and the channel or interface that it came from."""

    frame: Frame
    channel: str


class Damaged(NamedTuple):
    """A place of a log without a frame that a bus can carry; later frames can be read.

    Attributes:
        reason: begins with the place.
        lost: number of frames that are lost there.
    """

    reason: str
    lost: int = 1


class OtherEvent(NamedTuple):
    """An entry of a log that is no frame of CAN: statistics, variables, frames of other buses."""

    kind: str


LogEntry = Logged | Damaged | OtherEvent


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames in the order of their times.

    Attributes:
        t_ns: int64 [n].
        id: u4 [n], identifiers with their flags.
        length: u1 [n], bytes.
        flags: u1 [n], see `Frame`.
        data: u1 [n, 8 or 64], zeros behind the bytes of a frame.
    """

    t_ns: npt.NDArray[np.int64]
    id: npt.NDArray[np.uint32]
    length: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    data: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.t_ns)

    def part(self, chosen: slice | npt.NDArray[np.intp]) -> Frames:
        """Return some of the frames."""
        return Frames(*(getattr(self, name)[chosen] for name in self.__slots__))

    def channels(self) -> dict[str, npt.NDArray[np.uint32] | npt.NDArray[np.uint8]]:
        """Return the channels of the stream of frames."""
        return {
            "id": self.id.astype("<u4", copy=False),
            "len": self.length,
            "flags": self.flags,
            "data": np.ascontiguousarray(self.data),
        }


def find_fault(frame: Frame) -> str | None:
    """Return the reason why a bus cannot have carried the frame; None if it can."""
    is_fd = bool(frame.flags & FD)
    most = FD_BYTES if is_fd else CLASSIC_BYTES
    if not 0 <= frame.size <= most or len(frame.data) > most:
        return f"a frame of {max(frame.size, len(frame.data))} bytes"
    if is_fd and (frame.size not in _FD_LENGTHS or frame.id & REMOTE):
        return f"a frame of CAN FD of {frame.size} bytes" + " is a remote request" * (
            frame.size in _FD_LENGTHS
        )
    number = frame.id & ID_MASK
    if not frame.id & (EXTENDED | ERROR) and number > STANDARD_MASK:
        return f"the identifier {number:X} of more than 11 bits"
    return None


def decode_length(code: int, *, is_fd: bool) -> int:
    """Return the bytes of data that a data length code means (ISO 11898-1)."""
    return _FD_LENGTHS[min(code, 15)] if is_fd else min(code, CLASSIC_BYTES)


def make_identifier(number: int, extended: bool) -> int | None:
    """Return an identifier with its flag; None if it has more bits than any bus carries."""
    return None if number > ID_MASK else number | EXTENDED * extended


def make_entry(frame: Frame, channel: int, place: str) -> Logged | Damaged:
    """Return a frame of a log as an entry, or the damage if no bus can have carried it."""
    if not -1_000_000_000 < frame.t_ns // 1_000_000_000 < 4_000_000_000:
        return Damaged(f"{place}: has the stamp {frame.t_ns / 1e9:g} s")
    if fault := find_fault(frame):
        return Damaged(f"{place}: has {fault}")
    return Logged(frame, str(channel))


def collect_frames(frames: Iterable[Frame], width: int) -> Frames:
    """Return frames as arrays.

    Args:
        frames: without a fault, of at most `width` bytes each.
        width: 8, or 64 for CAN FD.
    """
    rows = list(frames)
    data = b"".join(row.data.ljust(width, b"\0") for row in rows)
    return Frames(
        np.array([row.t_ns for row in rows], np.int64),
        np.array([row.id for row in rows], np.uint32),
        np.array([row.size for row in rows], np.uint8),
        np.array([row.flags for row in rows], np.uint8),
        np.frombuffer(data, np.uint8).reshape(len(rows), width),
    )


def parse_frames(
    rows: npt.NDArray[np.uint8],
    sizes: npt.NDArray[np.int64],
    t_ns: npt.NDArray[np.int64],
    sent: npt.NDArray[np.bool_],
    width: int,
) -> tuple[Frames, npt.NDArray[np.intp]]:
    """Parse structures of the kernel.

    Args:
        rows: u1 [n, 72 or more], a structure each, in the machine's byte order.
        sizes: int64 [n], bytes of each structure.
        t_ns: int64 [n], times of the frames.
        sent: bool [n], whether this machine sent the frame.
        width: 8, or 64 where frames of CAN FD come.

    Returns:
        the frames, and their rows.  A structure with a size or a length that CAN does not have
        gives no frame.
    """
    length, fd = rows[:, 4], sizes == FD_MTU
    valid = ((sizes == CLASSIC_MTU) & (length <= CLASSIC_BYTES)) | (
        fd & (length <= FD_BYTES) & (width == FD_BYTES)
    )
    kept = np.flatnonzero(valid)
    chosen = rows[kept, : FD_MTU if width == FD_BYTES else CLASSIC_MTU]
    ids = np.ascontiguousarray(chosen[:, :4]).view(np.uint32)[:, 0]
    lengths, fd = chosen[:, 4].copy(), fd[kept]
    known = np.uint8(SWITCHED | PASSIVE)
    flags = np.where(fd, chosen[:, 5] & known | np.uint8(FD), np.uint8(0))
    flags |= np.where(sent[kept], np.uint8(SENT), np.uint8(0))
    data = np.ascontiguousarray(chosen[:, 8:])
    # A shorter structure, or the controller, may have left other bytes behind the data.
    used = np.where(ids & REMOTE != 0, 0, lengths)
    data[np.arange(width) >= used[:, None]] = 0
    return Frames(t_ns[kept], ids, lengths, flags, data), kept


def pack_frame(frame: Frame) -> bytes:
    """Return the kernel's structure of a frame."""
    is_fd = bool(frame.flags & FD)
    head = _HEAD.pack(frame.id, frame.size, frame.flags & (SWITCHED | PASSIVE | FD) if is_fd else 0)
    return head + frame.data.ljust(FD_BYTES if is_fd else CLASSIC_BYTES, b"\0")
