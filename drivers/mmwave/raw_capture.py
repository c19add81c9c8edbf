"""Captures of raw radar IQ as files, read frame by frame: int16, with or without packet headers."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.mmwave.capture_series import (
    Capture,
    FilledPackets,
    Part,
    find_captures,
    next_file,
    read_packets,
)
from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.frames import WINDOW, AssembledFrame, FrameAssembler, MissedFrames
from drivers.mmwave.packets import PAYLOAD_BYTES
from recorder.common.errors import ProtocolError, SourceError

Frame = npt.NDArray[np.int16]

TRUNCATED: Final = "truncated"
"""Cause of a loss: a file ends inside a frame, or is missing."""
NETWORK: Final = "network"
"""Cause of a loss: the card's packets of these frames are not in the file."""


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    """A frame.

    Attributes:
        index: from the first capture's start, with the lost frames.
        data: int16 [chirps, tx, rx, values], little endian, zeros for missing bytes; a new array.
        bytes_missing: 0: the frame is complete.
        packets_lost, packets_corrupt: packets beginning in the frame that are not in the file, or
            damaged.
    """

    index: int
    data: Frame
    bytes_missing: int = 0
    packets_lost: int = 0
    packets_corrupt: int = 0


@dataclass(frozen=True, slots=True)
class LostFrames:
    """`count` frames from `index` on that are not recorded, with cause and details for people."""

    index: int
    count: int
    cause: str
    detail: dict[str, Any] = field(default_factory=dict)


class CaptureFiles:
    """Reader of the frames of captures one by one; memory does not grow with the files.

    >>> capture = CaptureFiles(path, chirp, "radar: file:adc_data.bin")
    >>> while (item := capture.read()) is not None:
    ...     ...                          # CapturedFrame or LostFrames
    >>> capture.close()

    Args:
        path: a file, or a folder of ``.bin`` files, read in the order of the numbers in their names
            (``2.bin`` before ``10.bin``).  `capture_series` finds files that continue each other.
        chirp: defines a frame's shape.
        where: prefix of messages.

    Attributes:
        counts: packets that were discarded without a loss, or damaged; of files with headers.
        warnings: about files that are not played, or that may continue in the next file.

    Raises:
        SourceError: no capture holds a complete frame, or the frames cannot be found.
    """

    def __init__(self, path: Path, chirp: ChirpConfig, where: str) -> None:
        self._where, self._chirp = where, chirp
        self.counts: dict[str, int] = {}
        self.warnings: list[str] = []
        if path.is_file() and (following := next_file(path)) is not None:
            self.warnings.append(
                f"{following.name} continues {path.name} and is not played; give the folder to "
                "play both"
            )
        try:
            self._captures = find_captures(path, chirp.frame_bytes, where)
        except OSError as error:
            raise SourceError(f"{where}: {error.strerror}") from None
        largest = max(sum(part.size for part in each.parts) for each in self._captures)
        if largest < chirp.frame_bytes:
            shape = " x ".join(map(str, chirp.shape))
            raise SourceError(
                f"{where}: {largest} bytes, but a frame of {shape} int16 has {chirp.frame_bytes}"
            )
        self.warnings += self._list_doubts()
        self._index = 0
        self._items = self._read()

    def read(self) -> CapturedFrame | LostFrames | None:
        """Return the next frame or loss; None after the last frame.

        Raises:
            SourceError: the operating system reports an error, or the packets are no capture.
        """
        try:
            return next(self._items, None)
        except OSError as error:
            raise SourceError(f"{self._where}: {error.strerror}") from None
        except ProtocolError as error:
            raise SourceError(f"{self._where}: {error}") from None

    def close(self) -> None:
        """Close the files."""
        self._items.close()

    def _read(self) -> Generator[CapturedFrame | LostFrames]:
        for capture in self._captures:
            read = self._packets if capture.has_headers else self._samples
            yield from read(capture)

    def _list_doubts(self) -> list[str]:
        """Return a warning where a file may continue in the next one, although it seems not to."""
        for capture in self._captures[:-1]:
            last = capture.parts[-1]
            lacking = -(last.begin + last.size) % self._chirp.frame_bytes
            if not capture.has_headers and lacking >= PAYLOAD_BYTES:
                return [
                    f"{last.path.name} ends inside a frame, and the next file is read as a capture "
                    "of its own; join the files if it continues there"
                ]
        return []

    def _samples(self, capture: Capture) -> Iterator[CapturedFrame | LostFrames]:
        """Read a capture without headers: position by position, over the ends of its files."""
        size, parts = self._chirp.frame_bytes, capture.parts
        filled = FilledPackets(parts[0].path)
        with _Bytes(parts) as content:
            frame = 0
            if not parts[0].missing:  # one later file, played alone
                frame = -(-parts[0].begin // size)
                if ahead := frame * size - parts[0].begin:
                    yield self._lost(1, {"file": parts[0].path.name, "bytes": ahead})
            while True:
                data = np.empty(self._chirp.shape, "<i2")  # a new array: the caller keeps it
                begin = frame * size
                view = data.reshape(-1).view(np.uint8).data
                got, part = content.read_into(view, begin)
                if got == size:
                    yield self._check(data, *filled.in_frame(view, begin))
                    frame += 1
                    continue
                resumed = content.resume(begin + got)
                if resumed is None:
                    if got:
                        yield self._lost(1, {"file": part.path.name, "bytes": got})
                    return
                after = -(-resumed.begin // size)
                detail: dict[str, Any] = {"file": part.path.name, "bytes": got}
                if resumed.missing:
                    detail = {"files_missing": list(resumed.missing)}
                yield self._lost(after - frame, detail)
                frame = after

    def _check(self, data: Frame, filled: int, packets: int) -> CapturedFrame | LostFrames:
        """Return a frame of which `filled` bytes are zeros instead of data."""
        if filled == self._chirp.frame_bytes:
            detail = {"packets_lost": packets, "packets_corrupt": 0}
            return LostFrames(self._next(1), 1, NETWORK, detail)
        return CapturedFrame(self._next(1), data, filled, packets)

    def _packets(self, capture: Capture) -> Iterator[CapturedFrame | LostFrames]:
        """Read a capture of packets with headers, as packets from the network are read."""
        size, parts = self._chirp.frame_bytes, capture.parts
        first = 0
        if parts[0].missing or parts[0].begin > WINDOW * PAYLOAD_BYTES:
            first = parts[0].begin // size  # the recording began later than the card
        if parts[0].missing and first:
            yield self._lost(first, {"files_missing": list(parts[0].missing)})
        assembler = FrameAssembler(size, first=first)
        missing: list[str] = []  # files that no loss has named yet
        file, end = 0, None
        for packets in read_packets([(part.path, part.joins) for part in parts]):
            if packets.file > file:
                file = packets.file
                missing += parts[file].missing
            if packets.end is not None:
                if packets.end <= assembler.position:
                    break  # the rest of a late packet
                end = packets.end
            t_ns = np.zeros(len(packets.rows), np.int64)
            for item in assembler.take(packets.rows, packets.sizes, t_ns):
                yield from self._convert(item, missing, end)
        end = assembler.position if end is None else end
        for item in assembler.flush():
            yield from self._convert(item, missing, end)
        for name, count in (
            ("packets_duplicate", assembler.duplicates),
            ("packets_reordered", assembler.reordered),
            ("packets_late", assembler.late),
            ("packets_damaged", assembler.corrupt),
        ):
            if count:
                self.counts[name] = self.counts.get(name, 0) + count

    def _convert(
        self, item: AssembledFrame | MissedFrames, missing: list[str], end: int | None
    ) -> Iterator[CapturedFrame | LostFrames]:
        """Convert the assembler's item, for a capture that ends at a position."""
        size = self._chirp.frame_bytes
        packets = item.packets_lost, item.packets_corrupt
        if isinstance(item, AssembledFrame):
            if end is None or (item.index + 1) * size <= end:
                data = item.data.view("<i2").reshape(self._chirp.shape)
                yield CapturedFrame(self._next(1), data, item.bytes_missing, *packets)
            elif (got := end - item.index * size) > 0:
                yield self._lost(1, {"bytes": got})
            return
        detail: dict[str, Any] = {"packets_lost": packets[0], "packets_corrupt": packets[1]}
        if missing:
            detail["files_missing"] = list(missing)
        cause = TRUNCATED if missing else NETWORK
        missing.clear()
        yield LostFrames(self._next(item.count), item.count, cause, detail)

    def _lost(self, count: int, detail: dict[str, Any]) -> LostFrames:
        detail["frame_bytes"] = self._chirp.frame_bytes
        return LostFrames(self._next(count), count, TRUNCATED, detail)

    def _next(self, count: int) -> int:
        """Return the index of the next frame, and count frames."""
        index = self._index
        self._index += count
        return index


class _Bytes:
    """The bytes of a capture by their position, over several files."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts
        self._at = 0  # index of the open file
        self._file: FileIO | None = None

    def __enter__(self) -> _Bytes:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read_into(self, view: memoryview, position: int) -> tuple[int, Part]:
        """Fill `view` from a position on; return the bytes that are there, and the last file.

        Fewer bytes are there before a missing file, or at the end of a file that has become
        shorter.  The last file may have become longer.
        """
        got = 0
        while True:
            part = self._parts[self._at]
            is_last = self._at + 1 == len(self._parts)
            here = position + got
            if here < part.begin:
                return got, part
            end = position + len(view) if is_last else part.begin + part.size
            wanted = min(end - here, len(view) - got)
            while wanted > 0 and (count := self._read(part, here, view[got : got + wanted])):
                got, here, wanted = got + count, here + count, wanted - count
            if wanted > 0 or got == len(view) or is_last:
                return got, part
            self._open(self._at + 1)

    def resume(self, position: int) -> Part | None:
        """Return the next file after the one at a position, and continue there; None: the end."""
        following = self._at if position < self._parts[self._at].begin else self._at + 1
        if following == len(self._parts):
            return None
        self._open(following)
        return self._parts[following]

    def _read(self, part: Part, position: int, view: memoryview) -> int:
        if self._file is None:
            self._file = part.path.open("rb", buffering=0)
        self._file.seek(position - part.begin)
        return self._file.readinto(view)

    def _open(self, at: int) -> None:
        self._close()
        self._at = at

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
