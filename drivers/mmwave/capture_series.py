"""Files of raw radar IQ that continue each other, and their positions in the capture.

TI's recorder (DCA1000EVM_CLI_Record, mmWave Studio) begins a new file at a size (1 GB by default),
in the middle of a frame: ``PREFIX_Raw_0.bin``, ``PREFIX_Raw_1.bin``, ...  All files but the last
have one size, so that the place of a file is known even where the files before it are missing.

With ``sequenceNumberEnable``, TI's recorder writes 14 bytes before the data of each packet: the
packet's number (u4), the bytes of its data (u4), the bytes sent before it (u6).  Others write the
packets as they come, with the 10 bytes of the card (SPRUIJ4A, section 5): without the bytes of the
data.

Beside a capture TI's recorder writes ``PREFIX_Raw_LogFile.csv``.  A row ``,OFFSET,BYTES,`` names
lost bytes, which are zeros in the capture; a row ``,,,OFFSET,BYTES,`` names bytes that came late
and are there.  Offsets count the bytes that the card sent.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from drivers.mmwave.packets import HEADER_BYTES, PACKET_BYTES, PAYLOAD_BYTES, packet_headers
from recorder.common.errors import SourceError

_NUMBERED: Final = re.compile(r"(.*?)(\d+)\.bin")
_SMALL_FRAME: Final = 16 * PAYLOAD_BYTES
_TI_PREFIX: Final = re.compile(r".*_(Raw|hdr_[0-9A-F]{4})_")


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a capture.

    Attributes:
        path: of the file.
        begin: position of its first byte in the capture; of files with packet headers, of its
            first packet's data.
        size: bytes.
        missing: names of the files before it that are missing.
        joins: it begins inside a packet with a header, whose beginning the file before holds.
    """

    path: Path
    begin: int
    size: int
    missing: tuple[str, ...] = ()
    joins: bool = False


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture in one or several files.

    Attributes:
        parts: its files, in order.
        has_headers: the files hold the card's packets, each with its header; else only their data.
    """

    parts: tuple[Part, ...]
    has_headers: bool


def find_captures(path: Path, frame_bytes: int, where: str) -> list[Capture]:
    """Return the captures in a file or in the ``.bin`` files of a folder, in their order.

    Files of TI's names are one capture.  So are other files that differ by their numbers only, if
    they were cut at a size: all but the last are equally large, and they do not end where frames
    end, as captures of their own do.

    Args:
        path: a file or a folder.
        frame_bytes: size of a frame.
        where: prefix of messages.

    Raises:
        SourceError: there is no file, or it is not known where the frames begin.
    """
    if not path.is_dir():
        number, prefix = _parse_number(path), _parse_prefix(path)
        if number and _TI_PREFIX.fullmatch(prefix) and first_position(path) is None:
            return [_later_part(path, where)]
        return _captures([path], frame_bytes, where, alone=True)
    found = sorted(path.glob("*.bin"), key=_number_order)
    if not found:
        raise SourceError(f"{where}: no .bin file in this folder")
    names = {each.name for each in found}
    for name in names:
        if name.endswith("_Raw_0.bin") and (other := name.replace("_Raw_0.bin", ".bin")) in names:
            raise SourceError(
                f"{where}: {other} is made of {name} by mmWave Studio, so that every frame would "
                "come twice; give one of these files"
            )
    groups: dict[str, list[Path]] = {}
    for each in found:
        groups.setdefault(_parse_prefix(each), []).append(each)
    captures = [capture for g in groups.values() for capture in _captures(g, frame_bytes, where)]
    order = {each: k for k, each in enumerate(found)}
    return sorted(captures, key=lambda capture: order[capture.parts[0].path])


def next_file(path: Path) -> Path | None:
    """Return the file in which TI's recorder continued a file; None: it is not there."""
    number, prefix = _parse_number(path), _parse_prefix(path)
    if number is None or not _TI_PREFIX.fullmatch(prefix):
        return None
    following = path.with_name(f"{prefix}{number + 1}.bin")
    return following if following.is_file() else None


def _captures(
    paths: Sequence[Path], frame_bytes: int, where: str, alone: bool = False
) -> list[Capture]:
    """Return the captures in files whose names differ by their numbers only.

    Args:
        paths: the files, in order.
        frame_bytes: size of a frame.
        where: prefix of messages.
        alone: one file is played, whatever files are beside it.
    """
    sizes = {path: path.stat().st_size for path in paths}
    paths = [path for path in paths if sizes[path]] or paths  # an empty file is a missing one
    prefix = _parse_prefix(paths[0])
    is_ti = _TI_PREFIX.fullmatch(prefix) is not None
    if first_position(paths[0]) is not None:
        return _split_by_headers(paths, sizes, where, is_ti and not alone)
    if not alone and (is_ti or _is_cut_at_size([sizes[path] for path in paths], frame_bytes)):
        begin = 0 if is_ti else _parse_number(paths[0]) or 0
        return [Capture(tuple(_place_files(paths, sizes, begin, where)), has_headers=False)]
    return [Capture((Part(path, 0, sizes[path]),), has_headers=False) for path in paths]


def _is_cut_at_size(sizes: Sequence[int], frame_bytes: int) -> bool:
    """Return whether files are parts of one capture, and not captures of their own.

    A capture ends at most a packet before the end of a frame, since the card keeps the last bytes
    until they fill a packet.
    """
    full, last = set(sizes[:-1]), sizes[-1]
    if len(full) != 1 or last > max(full):
        return False
    if not all(-size % frame_bytes < PAYLOAD_BYTES for size in sizes):
        return True
    # A small frame's end is often near; captures of their own are then of one length.
    all_are_whole = -sum(sizes) % frame_bytes < PAYLOAD_BYTES
    return frame_bytes < _SMALL_FRAME and all_are_whole and last not in full


def _place_files(
    paths: Sequence[Path], sizes: dict[Path, int], first: int, where: str
) -> list[Part]:
    """Place files in the capture that begins with the file `first`."""
    parts: list[Part] = []
    begin, expected = 0, first
    full = {sizes[path] for path in paths[:-1]}
    for path in paths:
        number = _parse_number(path)
        if number is None:
            return [Part(path, 0, sizes[path])]
        missing = _names(path, expected, number)
        if missing and len(full) != 1:
            raise SourceError(
                f"{where}: {missing[0]} is missing, so that it is not known where the frames of "
                f"{path.name} begin; rename {path.name} if it begins with a frame"
            )
        begin += len(missing) * next(iter(full), 0)
        parts.append(Part(path, begin, sizes[path], missing))
        begin += sizes[path]
        expected = number + 1
    return parts


def _later_part(path: Path, where: str) -> Capture:
    """Return one later file of a capture, placed by the files before it."""
    prefix = _parse_prefix(path)
    siblings = [each for each in path.parent.glob("*.bin") if _parse_prefix(each) == prefix]
    ordered = sorted(siblings, key=_number_order)
    sizes = {each: each.stat().st_size for each in ordered}
    parts = _place_files(ordered, sizes, 0, where)
    return Capture(
        tuple(Part(each.path, each.begin, each.size) for each in parts if each.path == path),
        has_headers=False,
    )


def _split_by_headers(
    paths: Sequence[Path], sizes: dict[Path, int], where: str, from_zero: bool
) -> list[Capture]:
    """Return the captures in files of packets; a count that restarts begins another capture.

    Args:
        paths: the files, in order.
        sizes: their bytes.
        where: prefix of messages.
        from_zero: the first capture begins with the file of number 0.
    """
    groups: list[list[Part]] = []
    last = -1
    before = -1 if from_zero else None  # number of the file before
    for path in paths:
        position, number = first_position(path), _parse_number(path)
        missing: tuple[str, ...] = ()
        if before is not None and number is not None:
            missing = _names(path, before + 1, number)
        before = number
        if position is None and (missing or not groups):
            raise SourceError(
                f"{where}: {path.name} does not begin with a packet's header, as other files of "
                "its name do"
            )
        if not groups or (position is not None and position <= last):
            groups.append([])
        part = Part(path, position or 0, sizes[path], missing, joins=position is None)
        groups[-1].append(part)
        last = last if position is None else position
    return [Capture(tuple(parts), has_headers=True) for parts in groups]


def _parse_number(path: Path) -> int | None:
    match = _NUMBERED.fullmatch(path.name)
    return int(match[2]) if match else None


def _parse_prefix(path: Path) -> str:
    match = _NUMBERED.fullmatch(path.name)
    return match[1] if match else path.name


def _names(path: Path, begin: int, end: int) -> tuple[str, ...]:
    """Return the names of files with the numbers [begin, end), in the form of a file's name."""
    digits = path.name.removeprefix(_parse_prefix(path)).removesuffix(".bin")
    width = len(digits) if digits.startswith("0") else 0
    return tuple(f"{_parse_prefix(path)}{n:0{width}}.bin" for n in range(begin, end))


def _number_order(path: Path) -> list[tuple[bool, int | str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in parts if part]


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
