"""Files of a DCA1000's packets with their headers, as TI's recorder and others write them.

TI's DCA1000EVM_CLI_Record, with ``sequenceNumberEnable``, writes 14 bytes before the data of each
packet: the packet's number (u4), the bytes of its data (u4), the bytes sent before it (u6).  Others
write the packets as they come, with the 10 bytes of the card (SPRUIJ4A, section 5): without the
bytes of the data.

Beside a capture TI's recorder writes ``PREFIX_Raw_LogFile.csv``.  A row ``,OFFSET,BYTES,`` names
lost bytes, which are zeros in the capture; a row ``,,,OFFSET,BYTES,`` names bytes that came late
and are there.  Offsets count the bytes that the card sent.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from drivers.mmwave.packets import HEADER_BYTES, PACKET_BYTES, PAYLOAD_BYTES, packet_headers

Bytes = npt.NDArray[np.uint8]

_TI_RECORD: Final = PACKET_BYTES + 4
_LOOK: Final = 64  # records that are looked at
_CHUNK: Final = 256


def _split(records: Bytes) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Return packets as the card sends them, u1 [n, 1466], and their sizes, int64 [n].

    Args:
        records: u1 [n, 1470] or [n, 1466].
    """
    if records.shape[1] == PACKET_BYTES:
        return records, np.full(len(records), PACKET_BYTES, np.int64)
    sizes = np.ascontiguousarray(records[:, 4:8]).view("<u4")[:, 0].astype(np.int64)
    return np.delete(records, np.s_[4:8], axis=1), sizes + HEADER_BYTES


def _check_agreement(packets: Bytes) -> npt.NDArray[np.bool_]:
    """Return whether packets' numbers and byte counts agree: bool [n]; see `packet_headers`."""
    numbers, positions = packet_headers(packets)
    base = numbers - positions // PAYLOAD_BYTES
    whole = positions % PAYLOAD_BYTES == 0
    return np.asarray(whole & ((base == 0) | (base == 1)) & (numbers > 0), np.bool_)


def _find_records(path: Path) -> tuple[int, int] | None:
    """Return the size of a file's records and the position of its first packet.

    None: the file holds no packet headers.  Noise and zeros are no headers: numbers and byte counts
    must agree in two records, or in one with the size of its data.
    """
    with path.open("rb") as file:
        head = file.read(_LOOK * _TI_RECORD)
    if 0 < (there := len(head) - _TI_RECORD + PAYLOAD_BYTES) < PAYLOAD_BYTES:  # a capture's end
        packets, sizes = _split(np.frombuffer(head.ljust(_TI_RECORD, b"\0"), np.uint8)[None])
        if _check_agreement(packets)[0] and sizes[0] == HEADER_BYTES + there:
            return _TI_RECORD, int(packet_headers(packets)[1][0])
    for size, needed in ((_TI_RECORD, 1), (PACKET_BYTES, 2)):
        count = min(len(head) // size, _LOOK)
        records = np.frombuffer(head, np.uint8, count * size).reshape(count, size)
        packets, sizes = _split(records)
        good = _check_agreement(packets) & (sizes == PACKET_BYTES)
        numbers, positions = packet_headers(packets)
        if len(np.unique(numbers[good])) >= needed:
            # A damaged header at the beginning has the place that the next good one gives.
            at = int(good.argmax())
            return size, max(0, int(positions[at]) - at * PAYLOAD_BYTES)
    return None


def first_position(path: Path) -> int | None:
    """Return the position of a file's first packet in the capture; None: it has no headers."""
    found = _find_records(path)
    return None if found is None else found[1]


class Packets(NamedTuple):
    """Packets of a capture.

    Attributes:
        file: index of their file.
        rows: u1 [n, 1466], as the card sends them.
        sizes: int64 [n], their bytes.
        end: position of the capture's last byte in the file, if the last packet is shorter than
            others; its row is filled with zeros.
    """

    file: int
    rows: Bytes
    sizes: npt.NDArray[np.int64]
    end: int | None = None


def read_packets(files: Sequence[tuple[Path, bool]]) -> Iterator[Packets]:
    """Yield the packets of a capture.

    Args:
        files: paths, and whether the file begins inside a packet that the file before begins.
    """
    found = _find_records(files[0][0])
    size = _TI_RECORD if found is None else found[0]
    rest = b""
    for index, (path, joins) in enumerate(files):
        rest = rest if joins else b""
        with path.open("rb") as file:
            while data := file.read(_CHUNK * size):
                data = rest + data
                whole = len(data) // size
                rest = data[whole * size :]
                records = np.frombuffer(data, np.uint8, whole * size).reshape(whole, size)
                yield Packets(index, *_split(records))
    header = size - PAYLOAD_BYTES
    if len(rest) > header:
        rows, sizes = _split(np.frombuffer(rest.ljust(size, b"\0"), np.uint8)[None])
        there = min(len(rest) - header, int(sizes[0]) - HEADER_BYTES)
        if there > 0 and _check_agreement(rows)[0]:
            end = int(packet_headers(rows)[1][0]) + there
            yield Packets(len(files) - 1, rows, np.full(1, PACKET_BYTES, np.int64), end)


_ROW: Final = re.compile(r",(,,)?(\d{1,15}),(\d{1,15}),")
_RAW_FILE: Final = re.compile(r"(.*_Raw_)\d+\.bin")


class FilledPackets:
    """The packets of a capture that are zeros instead of data."""

    def __init__(self, path: Path) -> None:
        """Read the log beside a file of a capture; without a log, no packet is filled."""
        edges: dict[int, int] = {}
        match = _RAW_FILE.fullmatch(path.name)
        if match and (log := path.with_name(f"{match[1]}LogFile.csv")).is_file():
            for line in log.read_text("utf-8", errors="replace").splitlines():
                if row := _ROW.match(line):
                    change = -1 if row[1] else 1
                    begin, size = int(row[2]), int(row[3])
                    edges[begin] = edges.get(begin, 0) + change
                    edges[begin + size] = edges.get(begin + size, 0) - change
        self._begins: list[int] = []
        self._ends: list[int] = []
        depth = 0
        for begin, end in pairwise(sorted(edges)):
            depth += edges[begin]
            if depth > 0:
                self._begins.append(begin)
                self._ends.append(end)

    def in_frame(self, data: memoryview, position: int) -> tuple[int, int]:
        """Return the bytes of a frame that are filled, and the packets that begin in it.

        Args:
            data: the frame.
            position: of the frame in the capture.
        """
        filled = packets = 0
        at = max(0, bisect_right(self._begins, position) - 1)
        stop = position + len(data)
        while at < len(self._begins) and self._begins[at] < stop:
            begin, end = max(self._begins[at], position), min(self._ends[at], stop)
            # A log of another capture does not fit: packets of a radar are never zeros.
            if begin < end and not bytes(data[begin - position : end - position]).strip(b"\0"):
                filled += end - begin
                packets += -(-end // PAYLOAD_BYTES) - -(-begin // PAYLOAD_BYTES)
            at += 1
        return filled, packets
