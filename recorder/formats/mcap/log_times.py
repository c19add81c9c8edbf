"""Log times of an MCAP file in the order in which its messages were written.

A chunk's message indexes hold the log time and the offset of each message, so that no message is
read. A chunk without indexes is read whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from mcap.opcode import Opcode

from recorder.common.errors import FormatError
from recorder.formats.mcap.index import Blocks
from recorder.formats.mcap.records import RECORD, Budget, RawMessage, RecordFile, records

_MESSAGE_INDEX = struct.Struct("<BQHI")
"""Opcode, length of the rest, channel, and bytes of the entries: time and offset, u8 each."""

Entries = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Offsets in the block's records, and log times, int64 [n] each, by offset."""


def read_log_times(file: RecordFile, blocks: Blocks) -> Iterator[tuple[int, dict[int, Entries]]]:
    """Yield the number of each block and its log times by channel, in the order of the file.

    A block that is damaged is left out: the damage is reported where its messages are read.
    """
    budget = Budget()
    for block in np.argsort(np.frombuffer(blocks.offset, np.uint64), kind="stable").tolist():
        found = indexed_log_times(file, blocks, block)
        if found is None:
            try:
                found = _scan_log_times(file, blocks, block, budget)
            except FormatError:
                continue
        if found:
            yield block, found


def indexed_log_times(file: RecordFile, blocks: Blocks, block: int) -> dict[int, Entries] | None:
    """Return the log times in the message indexes of a chunk; None if they cannot be used."""
    size = blocks.index_bytes[block]
    if not size:
        return None
    try:
        data = file.read(blocks.end[block], size)
    except FormatError:
        return None
    found: dict[int, Entries] = {}
    at = 0
    while at < size:
        if at + _MESSAGE_INDEX.size > size:
            return None
        opcode, length, channel, stored = _MESSAGE_INDEX.unpack_from(data, at)
        body, at = at + _MESSAGE_INDEX.size, at + RECORD.size + length
        if opcode != Opcode.MESSAGE_INDEX or stored % 16 or body + stored > at or at > size:
            return None
        pairs = np.frombuffer(data, "<u8", stored // 8, body).reshape(-1, 2).astype(np.int64)
        times, offsets = pairs[:, 0], pairs[:, 1]
        if channel in found or (len(offsets) and (offsets[0] < 0 or offsets.max() >= 1 << 31)):
            return None
        if len(offsets) > 1 and not bool((np.diff(offsets) > 0).all()):
            order = np.argsort(offsets, kind="stable")
            times, offsets = times[order], offsets[order]
        if len(times):
            found[channel] = offsets, times
    return found


def _scan_log_times(
    file: RecordFile, blocks: Blocks, block: int, budget: Budget
) -> dict[int, Entries]:
    data = block_records(file, blocks, block, budget)
    found: dict[int, list[tuple[int, int]]] = {}
    for record in records(data, budget, lambda _, what: file.error(blocks.offset[block], what)):
        if isinstance(record, RawMessage):
            found.setdefault(record.channel, []).append((record.record, record.log_ns))
    return {
        channel: (pairs[:, 0], pairs[:, 1])
        for channel, entries in found.items()
        if len(pairs := np.array(entries, np.uint64).astype(np.int64))
    }


def block_records(file: RecordFile, blocks: Blocks, block: int, budget: Budget) -> bytes:
    """Return the records of a block, decompressed."""
    at, end = blocks.offset[block], blocks.end[block]
    if not blocks.is_chunk[block]:
        budget.add(end - at)
        return file.read(at, end - at)
    place = file.place(at, end)
    if place.opcode != Opcode.CHUNK or place.end != end:
        raise file.error(at, "the index names a chunk here, but the record is no chunk")
    return file.chunk(place, budget)
