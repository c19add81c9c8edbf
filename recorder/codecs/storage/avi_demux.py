"""Search for the frames of an AVI file, by its indexes if they are valid, else by walking.

It reads AVI 1.0 and OpenDML files of any muxer (roverd's own traces come from OpenCV). If there are
several streams, it reads the first video stream.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recorder.codecs.storage.avi import CHUNK, INDEX_HEAD, SUPER_ENTRY
from recorder.codecs.storage.channel import ReadFile
from recorder.common.errors import FormatError

_MAX_HEADER = 1 << 24
_KNOWN_CHUNK = re.compile(rb"\d\d(dc|db|wb|tx|pc)|ix\d\d|idx1|JUNK")


@dataclass(slots=True)
class Frames:
    """Positions of each frame's bytes.

    Attributes:
        offsets: int64 [n], of the frame's bytes (after its chunk header).
        sizes: u4 [n], bytes of the frame.
        tail: number of bytes at the end of the file that belong to no whole chunk.
        missing: number of frames that the header counts and the file does not hold.
    """

    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.uint32]
    tail: int = 0
    missing: int = 0


@dataclass(slots=True)
class _Header:
    stream: bytes = b""  # the stream's number, two digits
    length: int = 0  # frames that the header counts
    movi: int = 0  # offset of the frame list
    super_index: bytes = b""


def find_frames(file: ReadFile) -> Frames:
    """Find all whole frames of a file.

    An index is used if it holds exactly the frames that the header counts, each inside the file,
    and if the file ends with its last RIFF. Otherwise the chunks are walked.

    Raises:
        FormatError: the file is not an AVI, or has no frame list or no video stream.
    """
    header = _read_header(file)
    if header.length:
        for found in (_read_super_index(file, header), _read_idx1(file, header)):
            if found and len(found.sizes) == header.length and _ends_well(file):
                return found
    return _walk(file, header)


def chunk_id_fits(name: bytes) -> bool:
    """Return whether a chunk's name is that of a video frame."""
    return name[2:] in (b"dc", b"db")


def _read_header(file: ReadFile) -> _Header:
    magic = file.peek(0, 12)
    if len(magic) < 12 or magic[:4] != b"RIFF" or magic[8:] != b"AVI ":
        raise FormatError(f"{file.path}: not an AVI file ({file.size} bytes)")
    header = _Header()
    at = 12
    while at + 12 <= file.size:
        name, size = CHUNK.unpack(file.read(at, 8))
        kind = file.read(at + 8, 4)
        if name == b"LIST" and kind == b"movi":
            if not header.stream:
                raise FormatError(f"{file.path}: no video stream in its header")
            header.movi = at
            return header
        if name == b"LIST" and kind == b"hdrl":
            if size > _MAX_HEADER or at + 8 + size > file.size:
                break
            _read_streams(header, file.read(at + 12, size - 4))
        at += 8 + size + (size & 1)
    raise FormatError(f"{file.path}: an AVI without a frame list ({file.size} bytes)")


def _read_streams(header: _Header, hdrl: bytes) -> None:
    number = 0
    for name, body in _split_chunks(hdrl):
        if name != b"LIST" or body[:4] != b"strl":
            continue
        parts = dict(_split_chunks(body[4:]))
        strh = parts.get(b"strh", b"")
        if strh[:4] == b"vids" and len(strh) >= 36 and not header.stream:
            header.stream = b"%02d" % number
            (header.length,) = struct.unpack_from("<I", strh, 32)
            header.super_index = parts.get(b"indx", b"")
        number += 1


def _split_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 8 <= len(data):
        name, size = CHUNK.unpack_from(data, at)
        yield name, data[at + 8 : at + 8 + size]
        at += 8 + size + (size & 1)


def _ends_well(file: ReadFile) -> bool:
    """Return whether the RIFFs follow one another to the file's end."""
    at = 0
    while at + 8 <= file.size:
        name, size = CHUNK.unpack(file.read(at, 8))
        if name != b"RIFF":
            return False
        at += 8 + size + (size & 1)
    return at == file.size


def _read_super_index(file: ReadFile, header: _Header) -> Frames | None:
    """Find frames by OpenDML: the super index, then each segment's standard index."""
    head = header.super_index[:24]
    if len(head) < 24 or head[:2] != b"\x04\0" or head[3] != 0:
        return None
    (used,) = struct.unpack_from("<I", head, 4)
    offsets, sizes = [], []
    for number in range(used):
        at = 24 + SUPER_ENTRY.size * number
        if at + SUPER_ENTRY.size > len(header.super_index):
            return None
        where, length, _ = SUPER_ENTRY.unpack_from(header.super_index, at)
        if where + length > file.size or length < INDEX_HEAD.size:
            return None
        raw = file.read(where, length)
        name, _, words, _, kind, count, chunk_id, base, _ = INDEX_HEAD.unpack_from(raw)
        if (name, words, kind) != (b"ix" + header.stream, 2, 1) or not chunk_id_fits(chunk_id):
            return None
        if INDEX_HEAD.size + 8 * count > len(raw) or base > file.size:
            return None
        entries = np.frombuffer(raw, "<u4", 2 * count, INDEX_HEAD.size).reshape(-1, 2)
        offsets.append(entries[:, 0].astype(np.int64) + base)
        sizes.append(entries[:, 1] & np.uint32(0x7FFFFFFF))
    if not offsets:
        return None
    return _check_bounds(file, np.concatenate(offsets), np.concatenate(sizes))


def _read_idx1(file: ReadFile, header: _Header) -> Frames | None:
    """Find frames by AVI 1.0: the index after the first frame list, for files of one RIFF."""
    (movi_bytes,) = struct.unpack("<I", file.read(header.movi + 4, 4))
    at = header.movi + 8 + movi_bytes + (movi_bytes & 1)
    head = file.peek(at, 8)
    if len(head) < 8 or head[:4] != b"idx1":
        return None
    (size,) = struct.unpack_from("<I", head, 4)
    raw = file.peek(at + 8, size)
    if len(raw) != size or size % 16 or not size:
        return None
    entries = np.frombuffer(raw, "<u4").reshape(-1, 4)
    names = np.array([header.stream + b"dc", header.stream + b"db"]).view("<u4")
    entries = entries[np.isin(entries[:, 0], names) & (entries[:, 3] > 0)]
    if not len(entries):
        return None
    # Offsets count from the list's type field; some writers count from the file's start.
    base = header.movi + 8
    if file.peek(base + int(entries[0, 2]), 4) != entries[0, 0].tobytes():
        base = 0
    return _check_bounds(file, entries[:, 2].astype(np.int64) + base + 8, entries[:, 3])


def _check_bounds(
    file: ReadFile, offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.uint32]
) -> Frames | None:
    real = sizes > 0  # an entry of size 0 repeats the frame before it and holds none
    offsets, sizes = offsets[real], sizes[real].astype(np.uint32)
    if (offsets < 20).any() or (offsets + sizes > file.size).any():
        return None
    return Frames(offsets, sizes)


def _walk(file: ReadFile, header: _Header) -> Frames:
    offsets, sizes = array("q"), array("I")
    repeats = 0  # empty frames stand for the one before them
    at = header.movi + 12
    while at + CHUNK.size <= file.size:
        name, size = CHUNK.unpack(file.read(at, CHUNK.size))
        if name in (b"RIFF", b"LIST"):
            kind = file.peek(at + 8, 4)
            if kind in (b"AVIX", b"movi", b"rec "):
                at += 12
                continue
            if name == b"RIFF" or len(kind) < 4:
                break
        elif not _KNOWN_CHUNK.fullmatch(name):
            break
        if at + 8 + size > file.size:
            break
        if name[:2] == header.stream and chunk_id_fits(name):
            repeats += not size
            if size:
                offsets.append(at + 8)
                sizes.append(size)
        at += 8 + size + (size & 1)
    # A last padding byte may be missing: the frame before it is whole all the same.
    tail = max(0, file.size - at)
    return Frames(
        np.array(offsets, np.int64),
        np.array(sizes, np.uint32),
        tail,
        max(0, header.length - len(sizes) - repeats),
    )
