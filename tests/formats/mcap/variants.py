"""MCAP files in all variants of the conformance suite of MCAP's own project.

The suite (foxglove/mcap, ``tests/conformance``) writes six small recordings in each combination of
features that makes sense for them: 416 files.  `variants` writes the same files, byte for byte, by
the suite's description of the recordings; `SUITE_SHA256` proves it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from mcap.opcode import Opcode

MAGIC: Final = b"\x89MCAP0\r\n"
FEATURES: Final = ("ax", "ch", "chx", "mdx", "mx", "pad", "rch", "rsh", "st", "sum")
"""Attachment indexes, chunks, chunk indexes, metadata indexes, message indexes, padding behind each
record that may be extended, repeated channels, repeated schemas, statistics, summary offsets."""
PADDING: Final = b"\x01\xff\xff"
SUITE_SHA256: Final = "a7c167962062c31135b7b1eec327d4afe327a432894af644d5574cb0d0fdede2"
"""Of the lines ``SHA-256  NAME`` of the suite's files, as its repository lists them, by name."""


@dataclass(frozen=True)
class Attached:
    """An attachment: name, media type, log time, create time, data."""

    name: str
    media_type: str
    log_ns: int
    create_ns: int
    data: bytes


@dataclass(frozen=True)
class Recording:
    """What all variants of a recording hold; it has at most one channel, whose number is 1.

    Attributes:
        schema: name, encoding and data; its number is 1.
        channel: topic, message encoding, metadata.
        messages: sequence, log time, publish time, data.
    """

    name: str
    schema: tuple[str, str, bytes] | None = None
    channel: tuple[str, str, dict[str, str]] | None = None
    messages: tuple[tuple[int, int, int, bytes], ...] = ()
    attachments: tuple[Attached, ...] = ()
    metadata: tuple[tuple[str, dict[str, str]], ...] = ()


@dataclass(frozen=True)
class Variant:
    """A file: the recording, the features, and the bytes."""

    recording: Recording
    features: frozenset[str]
    data: bytes

    @property
    def name(self) -> str:
        """The file's name in the suite."""
        return "-".join([self.recording.name, *sorted(self.features)])


_DATA: Final = b"\x01\x02\x03"
_SCHEMA: Final = ("Example", "c", b"\x04\x05\x06")
_CHANNEL: Final = ("example", "a", {"foo": "bar"})
RECORDINGS: Final = (
    Recording("NoData"),
    Recording(
        "OneSchemalessMessage", channel=("example", "text", {}), messages=((10, 2, 1, _DATA),)
    ),
    Recording("OneMessage", _SCHEMA, _CHANNEL, ((10, 2, 1, _DATA),)),
    Recording(
        "OneAttachment",
        attachments=(Attached("myFile", "application/octet-stream", 2, 1, _DATA),),
    ),
    Recording("OneMetadata", metadata=(("myMetadata", {"foo": "bar"}),)),
    Recording(
        "TenMessages",
        _SCHEMA,
        _CHANNEL,
        tuple((k, t, t, _DATA) for k, t in enumerate((0, 2, 1, 3, 3, 5, 4, 7, 8, 9))),
    ),
)


def variants() -> Iterator[Variant]:
    """All files of the suite."""
    for recording in RECORDINGS:
        for count in range(len(FEATURES) + 1):
            for features in map(frozenset, combinations(FEATURES, count)):
                if _makes_sense(recording, features):
                    yield Variant(recording, features, write(recording, features))


def _makes_sense(recording: Recording, features: frozenset[str]) -> bool:
    needed = {
        "ax": bool(recording.attachments),
        "mdx": bool(recording.metadata),
        "rsh": recording.schema is not None,
        "rch": recording.channel is not None,
        "ch": recording.channel is not None,
        "chx": "ch" in features,
        "mx": "ch" in features,
        "sum": not features.isdisjoint({"chx", "rsh", "rch", "mdx", "ax", "st"}),
    }
    return all(needed.get(feature, True) for feature in features)


def write(recording: Recording, features: frozenset[str]) -> bytes:
    """A recording as a file with some features."""
    pad = PADDING if "pad" in features else b""
    out = bytearray(MAGIC) + _record(Opcode.HEADER, _text("") + _text("") + pad)
    definitions = _definitions(recording)
    messages = [
        (log_ns, _record(Opcode.MESSAGE, struct.pack("<HIQQ", 1, number, log_ns, sent_ns) + data))
        for number, log_ns, sent_ns, data in recording.messages
    ]
    times = [log_ns for log_ns, _ in messages]
    interval_ns = min(times, default=0), max(times, default=0)
    chunk_indexes: list[bytes] = []
    if "ch" in features:
        block = b"".join(_record(*each) for each in definitions)
        places = []
        for log_ns, message in messages:
            places.append(struct.pack("<QQ", log_ns, len(block)))
            block += message
        body = struct.pack("<QQQI", *interval_ns, len(block), zlib.crc32(block))
        chunk = _record(Opcode.CHUNK, body + _text("") + struct.pack("<Q", len(block)) + block)
        at, index = len(out), b""
        if "mx" in features:
            of_channel = struct.pack("<H", 1) + _sized(b"".join(places)) + pad
            index = _record(Opcode.MESSAGE_INDEX, of_channel)
        offsets = struct.pack("<HQ", 1, at + len(chunk)) if index else b""
        out += chunk + index
        if "chx" in features:
            sizes = struct.pack("<QQ", len(block), len(block))
            fields = struct.pack("<QQQQ", *interval_ns, at, len(chunk)) + _sized(offsets)
            chunk_indexes.append(fields + struct.pack("<Q", len(index)) + _text("") + sizes)
    else:
        out += b"".join(_record(opcode, body + pad) for opcode, body in definitions)
        out += b"".join(message for _, message in messages)
    attachment_indexes: list[bytes] = []
    for each in recording.attachments:
        body = struct.pack("<QQ", each.log_ns, each.create_ns) + _text(each.name)
        body += _text(each.media_type) + struct.pack("<Q", len(each.data)) + each.data
        record = _record(Opcode.ATTACHMENT, body + struct.pack("<I", zlib.crc32(body)) + pad)
        fields = struct.pack(
            "<5Q", len(out), len(record), each.log_ns, each.create_ns, len(each.data)
        )
        attachment_indexes.append(fields + _text(each.name) + _text(each.media_type))
        out += record
    metadata_indexes: list[bytes] = []
    for name, values in recording.metadata:
        record = _record(Opcode.METADATA, _text(name) + _map(values) + pad)
        metadata_indexes.append(struct.pack("<QQ", len(out), len(record)) + _text(name))
        out += record
    out += _record(Opcode.DATA_END, struct.pack("<I", zlib.crc32(out)))
    counts = struct.pack("<HQ", 1, len(messages)) if messages else b""
    statistics = struct.pack(
        "<QHIIIIQQ", len(messages), recording.schema is not None, recording.channel is not None,
        len(recording.attachments), len(recording.metadata), "ch" in features, *interval_ns,
    )  # fmt: skip
    start = len(out)
    groups: list[tuple[str, int, list[bytes]]] = [
        ("rsh", Opcode.SCHEMA, [b for opcode, b in definitions if opcode == Opcode.SCHEMA]),
        ("rch", Opcode.CHANNEL, [b for opcode, b in definitions if opcode == Opcode.CHANNEL]),
        ("st", Opcode.STATISTICS, [statistics + _sized(counts)]),
        ("mdx", Opcode.METADATA_INDEX, metadata_indexes),
        ("ax", Opcode.ATTACHMENT_INDEX, attachment_indexes),
        ("chx", Opcode.CHUNK_INDEX, chunk_indexes),
    ]
    summary_offsets = b""
    for feature, opcode, bodies in groups:
        if feature in features:
            group = b"".join(_record(opcode, body + pad) for body in bodies)
            body = struct.pack("<BQQ", opcode, len(out), len(group))
            summary_offsets += _record(Opcode.SUMMARY_OFFSET, body + pad)
            out += group
    has_summary, offset_start = len(out) > start, len(out) if "sum" in features else 0
    if "sum" in features:
        out += summary_offsets
    fields = struct.pack("<QQ", start if has_summary else 0, offset_start)
    covered = out[start:] + struct.pack("<BQ", Opcode.FOOTER, 20) + fields
    out += _record(Opcode.FOOTER, fields + struct.pack("<I", zlib.crc32(covered)))
    return bytes(out + MAGIC)


def _definitions(recording: Recording) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    if recording.schema is not None:
        name, encoding, data = recording.schema
        body = struct.pack("<H", 1) + _text(name) + _text(encoding) + _sized(data)
        found.append((Opcode.SCHEMA, body))
    if recording.channel is not None:
        topic, encoding, values = recording.channel
        numbers = struct.pack("<HH", 1, recording.schema is not None)
        found.append((Opcode.CHANNEL, numbers + _text(topic) + _text(encoding) + _map(values)))
    return found


def _record(opcode: int, body: bytes) -> bytes:
    return struct.pack("<BQ", opcode, len(body)) + body


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _text(text: str) -> bytes:
    return _sized(text.encode())


def _map(values: dict[str, str]) -> bytes:
    return _sized(b"".join(_text(key) + _text(value) for key, value in values.items()))
