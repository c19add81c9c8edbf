"""Our reader on files of the package ``mcap`` and of ours; damage ends in one clear error."""

from __future__ import annotations

import re
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from functools import reduce
from io import BytesIO
from itertools import chain, combinations, product
from operator import or_
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode
from mcap.writer import CompressionType, IndexType, Writer

from recorder.common.errors import FormatError
from recorder.common.files import PosixDisk
from recorder.formats.mcap import McapMessage
from recorder.formats.mcap import records as records_module
from recorder.formats.mcap.reader import McapReader
from recorder.formats.mcap.records import MAGIC, Budget, Place
from recorder.formats.mcap.writer import McapWriter
from tests.campaigns import Selector
from tests.examples import examples
from tests.formats.mcap.build import START_NS, Sent, write_file


def plain(messages: list[McapMessage]) -> Sent:
    return [(m.topic, m.sequence, m.log_ns, m.publish_ns, m.data) for m in messages]


def read(path: Path) -> Sent:
    with McapReader(path) as mcap:
        return plain(list(mcap.messages()))


def theirs(path: Path, count: int = 400, **how: object) -> Sent:
    """A file by the library's own writer, which puts messages out of order."""
    sent: Sent = []
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=5 * count, **how)  # type: ignore[arg-type]
        writer.start("ros2", "library")
        schema = writer.register_schema("pkg/msg/A", "ros2msg", b"int32 a")
        channels = [writer.register_channel(f"/{k}", "cdr", schema, {"k": k}) for k in "ab"]
        for k in range(count):
            log_ns, topic = START_NS + (k ^ 3) * 10, k % 2
            data = bytes([k % 256]) * 30
            writer.add_message(channels[topic], log_ns, data, log_ns - 1, k)
            sent.append((f"/{'ab'[topic]}", k, log_ns, log_ns - 1, data))
        writer.add_attachment(1, 2, "a.txt", "text/plain", b"abc")
        writer.add_metadata("m", {"k": "v"})
        writer.finish()  # type: ignore[no-untyped-call]
    return sorted(sent, key=lambda message: message[2])


SWITCHES = (
    *("use_chunking", "use_statistics", "use_summary_offsets", "repeat_channels"),
    *("repeat_schemas", "enable_crcs", "padded"),
)
INDEXES = (IndexType.ATTACHMENT, IndexType.CHUNK, IndexType.MESSAGE, IndexType.METADATA)
WAYS = [
    {**dict(zip(SWITCHES, switches, strict=True)), "index_types": reduce(or_, kept, IndexType.NONE)}
    for switches in product((True, False), repeat=len(SWITCHES))
    for kept in chain.from_iterable(combinations(INDEXES, n) for n in range(len(INDEXES) + 1))
]
"""The features of which MCAP's own conformance suite has all combinations."""
FIXED = (Opcode.CHUNK, Opcode.MESSAGE, Opcode.DATA_END, Opcode.FOOTER, Opcode.ATTACHMENT)
"""Records that no later version may extend, and one whose CRC the library puts at its end."""


@pytest.fixture
def padding(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the library writes fields of a later version behind those of each record."""
    finish, padded = RecordBuilder.finish_record, [False]

    def finish_longer(builder: Any) -> None:
        if padded[0] and builder._buffer.getbuffer()[builder._record_start_offset] not in FIXED:
            builder.write(b"\x01\xff\xff")
        finish(builder)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(RecordBuilder, "finish_record", finish_longer)
    return padded


@pytest.mark.parametrize("compression", CompressionType)
def test_files_of_the_library_in_all_its_ways(
    tmp_path: Path, select: Selector, padding: list[bool], compression: CompressionType
) -> None:
    path = tmp_path / "a.mcap"
    for way in select(WAYS, 12):
        how = dict(way)
        padding[0] = bool(how.pop("padded"))
        sent = theirs(path, 40, compression=compression, **how)
        with McapReader(path) as mcap:
            assert (mcap.profile, mcap.library) == ("ros2", "library"), way
            assert (mcap.damage, mcap.is_cut, mcap.conflicts) == ("", False, []), way
            assert plain(list(mcap.messages())) == sent, way
            assert (mcap.start_ns, mcap.end_ns) == (sent[0][2], sent[-1][2]), way
            topic = mcap.topics["/a"]
            assert (topic.schema_name, topic.schema_data) == ("pkg/msg/A", b"int32 a")
            assert (topic.schema_encoding, topic.message_encoding) == ("ros2msg", "cdr")
            assert (topic.count, topic.metadata) == (20, {"k": "a"}), way
            attached = [(a.name, a.media_type, a.log_ns, a.create_ns) for a in mcap.attachments()]
            assert attached == [("a.txt", "text/plain", 2, 1)], way
            assert [a.data for a in mcap.attachments()] == [b"abc"]
            assert list(mcap.metadata()) == [("m", {"k": "v"})], way


def test_topics_and_times_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    sent = write_file(path)
    with McapReader(path) as mcap:
        interval = START_NS + 50_000, START_NS + 90_001
        chosen = plain(list(mcap.messages(["/imu", "/none"], *interval)))
        assert chosen == [m for m in sent if m[0] == "/imu" and interval[0] <= m[2] < interval[1]]
        assert len(chosen) == 41
        assert list(mcap.messages([])) == []
        assert list(mcap.messages(start_ns=START_NS + 10**9)) == []


def test_only_chunks_that_are_needed_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.mcap"
    write_file(path)
    with McapReader(path) as mcap:
        file = mcap._file
        chunks: list[Place] = []
        real = file.chunk

        def counted(place: Place, budget: Budget) -> bytes:
            chunks.append(place)
            return real(place, budget)

        monkeypatch.setattr(file, "chunk", counted)
        messages = mcap.messages()
        for count in (1, 2, 2, 2):  # the first chunks of both topics
            next(messages)
            assert len(chunks) == count
        chunks.clear()
        list(mcap.messages(["/imu"], START_NS, START_NS + 1))
        assert len(chunks) == 1


def test_memory_stays_flat(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"

    def peak(count: int, finish: bool) -> int:
        path.unlink(missing_ok=True)
        with McapWriter(path, PosixDisk(), profile="", library="", chunk_bytes=1 << 17) as mcap:
            channel = mcap.channel("/a", 0, "x", compress=False)
            for k in range(count):
                mcap.write(channel, k, k, k, [bytes(20_000)])
            if finish:
                mcap.finish()
        tracemalloc.start()
        try:
            with McapReader(path) as reader:
                assert sum(1 for _ in reader.messages()) > count - 60
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    for finish in (True, False):
        assert peak(1200, finish) < peak(150, finish) + 200_000  # 21 MB more are read


def test_chunks_that_overlap_too_far_come_out_of_order_instead_of_filling_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.mcap"
    with McapWriter(path, PosixDisk(), profile="", library="", chunk_bytes=1000) as mcap:
        channel = mcap.channel("/a", 0, "x", compress=False)
        for k in range(40):  # each chunk spans all times
            mcap.write(channel, 0, k, 0, [bytes(800)])
            mcap.write(channel, 1, 1000 + k, 0, [bytes(800)])
        mcap.finish()
    monkeypatch.setattr("recorder.formats.mcap.OPEN_BYTES", 5000)
    messages = read(path)
    assert len(messages) == 80
    assert sorted(m[2] for m in messages) == [*range(40), *range(1000, 1040)]
    assert [m[2] for m in messages] != sorted(m[2] for m in messages)
    monkeypatch.undo()
    assert [m[2] for m in read(path)] == [*range(40), *range(1000, 1040)]


def test_a_killed_recorder_leaves_a_file_that_is_scanned(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    sent = write_file(path, finish=False)
    size = path.stat().st_size
    with McapReader(path) as mcap:
        found = plain(list(mcap.messages()))
        assert mcap.damage == f"{path}: was not finished: it ends after a record, at byte {size}"
        assert [(a.name, a.data) for a in mcap.attachments()] == [("config.yaml", b"version: 1\n")]
        assert mcap.topics["/imu"].count == sum(m[0] == "/imu" for m in found)
    assert set(found) < set(sent)
    assert len(found) > 400


def test_every_cut_gives_what_is_whole_and_says_what_is_lost(
    tmp_path: Path, select: Selector
) -> None:
    path, cut = tmp_path / "a.mcap", tmp_path / "cut.mcap"
    sent = write_file(path, 3, chunk_bytes=400)
    data = path.read_bytes()
    least = 0
    for size in select(range(len(data)), 200):
        cut.write_bytes(data[:size])
        try:
            with McapReader(cut) as mcap:
                found = plain(list(mcap.messages()))
                assert found == sorted(found, key=lambda m: m[2])
                assert set(found) <= set(sent)
                assert len(found) >= least
                assert found == sent or f"{cut}" in mcap.damage
                least = len(found)
        except FormatError as error:
            assert str(error).startswith(f"{cut}: byte "), size
            assert size < 40  # within the header
    assert least == len(sent)


def first(data: bytes, opcode: int) -> int:
    """Offset of the first record of a kind."""
    at = 8
    while data[at] != opcode:
        at += 9 + int.from_bytes(data[at + 1 : at + 9], "little")
    return at


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def test_a_damaged_chunk_of_an_indexed_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write_file(path)
    data = path.read_bytes()
    at = first(data, 0x06)
    path.write_bytes(flip(data, at + 300))
    with McapReader(path) as mcap, pytest.raises(FormatError) as caught:
        list(mcap.messages())
    assert str(caught.value).startswith(f"{path}: byte {at}: a chunk ")


def test_a_damaged_summary_is_replaced_by_a_scan(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    sent = write_file(path)
    data = path.read_bytes()
    path.write_bytes(flip(data, len(data) - 200))
    with McapReader(path) as mcap:
        assert plain(list(mcap.messages())) == sent
        assert "the summary has a wrong CRC" in mcap.damage
        assert "so the file was scanned" in mcap.damage


def test_a_scan_ends_at_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    sent = write_file(path, finish=False)
    data = path.read_bytes()
    path.write_bytes(flip(data, len(data) // 2))
    with McapReader(path) as mcap:
        found = plain(list(mcap.messages()))
        assert 0 < len(found) < len(sent)
        assert "are not read" in mcap.damage


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda d: b"", "byte 0: not an MCAP file"),
        (lambda d: b"RIFF" + d[4:], "byte 0: not an MCAP file"),
        (lambda d: d[:8], "byte 8: 0 bytes are no record"),
        (lambda d: d[:8] + b"\x03" + d[9:], "byte 8: the header is missing"),
        (lambda d: d[:9] + b"\xff" * 8 + d[17:], "byte 8: a record of 18446744073709551615 bytes"),
        (lambda d: d[:17] + b"\xff\xff\xff\x7f" + d[21:], "byte 8: a record that ends within"),
    ],
)
def test_garbage_is_refused(tmp_path: Path, make: Callable[[bytes], bytes], text: str) -> None:
    path = tmp_path / "a.mcap"
    write_file(path, 2)
    path.write_bytes(make(path.read_bytes()))
    with pytest.raises(FormatError) as caught:
        McapReader(path)
    assert str(caught.value).startswith(f"{path}: {text}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none.mcap: cannot be read: No such file"):
        McapReader(tmp_path / "none.mcap")


def test_a_chunk_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write_file(path)
    data = bytearray(path.read_bytes())
    at = first(bytes(data), 0x06)
    for size, text in (
        (1 << 40, "a chunk of 1099511627776 bytes, stored in .* bytes, is too large"),
        (1 << 29, "a chunk of 536870912 bytes, stored in .* bytes, is too large"),
        (1 << 26, "cannot be decompressed|instead of"),
    ):
        data[at + 25 : at + 33] = struct.pack("<Q", size)
        path.write_bytes(data)
        with McapReader(path) as mcap, pytest.raises(FormatError, match=text):
            list(mcap.messages())


def small_record(opcode: int, body: bytes = b"") -> bytes:
    return struct.pack("<BQ", opcode, len(body)) + body


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


DEFINITIONS = small_record(3, struct.pack("<H", 1) + text(b"A") + text(b"x") + text(b""))
DEFINITIONS += small_record(4, struct.pack("<HH", 1, 1) + text(b"/a") + text(b"x") + text(b""))


def chunk_of(block: bytes, times: tuple[int, int] = (1, 2), level: int = 1) -> bytes:
    stored = zstandard.ZstdCompressor(level).compress(block)
    head = struct.pack("<QQQI", *times, len(block), zlib.crc32(block)) + text(b"zstd")
    return small_record(6, head + struct.pack("<Q", len(stored)) + stored)


def plain_file(*parts: bytes, summary: bytes = b"") -> bytes:
    """A file of a header, the parts, and a summary or none."""
    start = small_record(1, text(b"") + text(b"")) + b"".join(parts) + small_record(15, bytes(4))
    at = 8 + len(start) if summary else 0
    footer = small_record(2, struct.pack("<QQI", at, 0, 0))
    return MAGIC + start + summary + footer + MAGIC


def test_an_attachment_may_have_fields_of_a_later_version(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    body = struct.pack("<QQ", 2, 1) + text(b"a.txt") + text(b"text/plain")
    body += struct.pack("<Q", 3) + b"abc"
    crc = struct.pack("<I", zlib.crc32(body))
    path.write_bytes(plain_file(small_record(9, body + crc + b"\x01\xff\xff")))
    with McapReader(path) as mcap:
        assert [(a.name, a.data) for a in mcap.attachments()] == [("a.txt", b"abc")]


EMPTY_MESSAGE = small_record(5, struct.pack("<HIQQ", 1, 0, 5, 5))


MANY = r"at byte \d+ of its records: the file has more records than stored bytes so far"


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (bytes(9 << 20), "at byte 0 of its records: a record of kind 0"),
        (small_record(0x80) * 200_000, MANY),
        (EMPTY_MESSAGE * 200_000, MANY),
    ],
    ids=["zeros", "private records", "empty messages"],
)
def test_a_small_chunk_with_very_many_records_is_refused(
    tmp_path: Path, block: bytes, reason: str
) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(plain_file(DEFINITIONS, chunk_of(block)))
    at = 8 + 17 + len(DEFINITIONS)
    with McapReader(path) as mcap:
        assert re.search(f"{path}: byte {at}: a chunk, {reason}", mcap.damage)
        assert list(mcap.messages()) == []


def test_many_chunks_with_many_records_are_refused_together(tmp_path: Path) -> None:
    """Each alone would be read: it is the file that is bounded."""
    path = tmp_path / "a.mcap"
    chunk = chunk_of(EMPTY_MESSAGE * 5000, level=19)
    path.write_bytes(plain_file(DEFINITIONS, *[chunk] * 50))
    second = 8 + 17 + len(DEFINITIONS) + 2 * len(chunk)
    with McapReader(path) as mcap:
        assert mcap.damage.startswith(f"{path}: byte {second}: a chunk, at byte ")
        assert "more records than stored bytes" in mcap.damage
        assert mcap.topics["/a"].count == 10_000


def test_large_chunks_that_are_stored_in_few_bytes_are_refused_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.mcap"
    chunk = chunk_of(small_record(5, struct.pack("<HIQQ", 1, 0, 5, 5) + bytes(1 << 20)))
    path.write_bytes(plain_file(DEFINITIONS, *[chunk] * 8))
    with McapReader(path) as mcap:
        assert mcap.damage == "" and mcap.topics["/a"].count == 8
    monkeypatch.setattr(records_module, "ANY_BYTES", 3 << 20)
    with McapReader(path) as mcap:
        assert re.search(
            r"byte \d+: a chunk of \d+ bytes, stored in \d+ bytes, is too", mcap.damage
        )
        assert 3 <= mcap.topics["/a"].count < 8


def test_many_small_messages_are_read(tmp_path: Path) -> None:
    """What compresses best of what is no attack: empty messages, each at its own time."""
    path, count = tmp_path / "a.mcap", 30_000
    block = b"".join(
        small_record(5, struct.pack("<HIQQ", 1, 0, t, t)) for t in range(1000, 1000 + count)
    )
    path.write_bytes(plain_file(DEFINITIONS, chunk_of(block, level=12)))
    with McapReader(path) as mcap:
        assert mcap.damage == ""
        assert mcap.topics["/a"].count == count


def test_an_indexed_chunk_with_very_many_records_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    chunk = chunk_of(EMPTY_MESSAGE * 200_000)
    at = 8 + 17 + len(DEFINITIONS)
    statistics = struct.pack("<QHIIIIQQ", 200_000, 1, 1, 0, 0, 1, 5, 5)
    index = struct.pack("<QQQQIQ", 5, 5, at, len(chunk), 0, 0) + text(b"zstd") + bytes(16)
    summary = DEFINITIONS + small_record(11, statistics + text(struct.pack("<HQ", 1, 200_000)))
    path.write_bytes(plain_file(DEFINITIONS, chunk, summary=summary + small_record(8, index)))
    with McapReader(path) as mcap:
        assert mcap.topics["/a"].count == 200_000
        reason = rf"a.mcap: byte {at}: at byte \d+: the file has more records than stored bytes"
        with pytest.raises(FormatError, match=reason):
            next(mcap.messages())


@pytest.mark.parametrize("log_ns", [0, 7])
def test_statistics_without_counts_are_no_counts_of_zero(tmp_path: Path, log_ns: int) -> None:
    """MCAP's specification: an empty map says that the numbers are not available."""
    path = tmp_path / "a.mcap"
    chunk = chunk_of(small_record(5, struct.pack("<HIQQ", 1, 9, log_ns, log_ns) + b"x"))
    at = 8 + 17 + len(DEFINITIONS)
    statistics = struct.pack("<QHIIIIQQ", 1, 1, 1, 0, 0, 1, log_ns, log_ns) + text(b"")
    index = struct.pack("<QQQQIQ", log_ns, log_ns, at, len(chunk), 0, 0) + text(b"zstd")
    summary = DEFINITIONS + small_record(11, statistics) + small_record(8, index + bytes(16))
    path.write_bytes(plain_file(DEFINITIONS, chunk, summary=summary))
    with McapReader(path) as mcap:
        assert (mcap.topics["/a"].count, mcap.damage) == (1, "")
        assert (mcap.start_ns, mcap.end_ns) == (log_ns, log_ns)
        assert plain(list(mcap.messages())) == [("/a", 9, log_ns, log_ns, b"x")]


def test_messages_between_chunks_are_read(tmp_path: Path) -> None:
    """MCAP's specification allows them; the indexes do not name them."""
    path = tmp_path / "a.mcap"
    loose, inside = (
        small_record(5, struct.pack("<HIQQ", 1, number, number, 0) + b"x") for number in (7, 9)
    )
    chunk = chunk_of(inside, (9, 9))
    at = 8 + 17 + len(DEFINITIONS) + len(loose)
    statistics = struct.pack("<QHIIIIQQ", 2, 1, 1, 0, 0, 1, 7, 9)
    index = struct.pack("<QQQQIQ", 9, 9, at, len(chunk), 0, 0) + text(b"zstd") + bytes(16)
    summary = DEFINITIONS + small_record(11, statistics + text(struct.pack("<HQ", 1, 2)))
    path.write_bytes(
        plain_file(DEFINITIONS, loose, chunk, summary=summary + small_record(8, index))
    )
    with McapReader(path) as mcap:
        assert [m.sequence for m in mcap.messages()] == [7, 9]
        assert (mcap.start_ns, mcap.end_ns, mcap.damage) == (7, 9, "")
    content = bytearray(path.read_bytes())
    content[at - len(loose)] = 0  # no record: the chunk behind it is still named by the index
    path.write_bytes(content)
    with McapReader(path) as mcap:
        assert [m.sequence for m in mcap.messages()] == [9]


@pytest.mark.parametrize(("counted", "listed"), [(0, 0), (1, 0), (2, 1)])
def test_a_summary_that_does_not_list_all_chunks_is_not_used(
    tmp_path: Path, counted: int, listed: int
) -> None:
    path = tmp_path / "a.mcap"
    messages = [small_record(5, struct.pack("<HIQQ", 1, n, n, 0) + b"x") for n in (7, 9)]
    chunks = [chunk_of(messages[0], (7, 7)), chunk_of(messages[1], (9, 9))]
    at = 8 + 17 + len(DEFINITIONS)
    statistics = struct.pack("<QHIIIIQQ", 2, 1, 1, 0, 0, counted, 7, 9)
    index = struct.pack("<QQQQIQ", 7, 7, at, len(chunks[0]), 0, 0) + text(b"zstd") + bytes(16)
    summary = DEFINITIONS + small_record(11, statistics + text(struct.pack("<HQ", 1, 2)))
    summary += small_record(8, index) * listed
    path.write_bytes(plain_file(DEFINITIONS, *chunks, summary=summary))
    with McapReader(path) as mcap:
        assert [m.sequence for m in mcap.messages()] == [7, 9]


@pytest.mark.parametrize(
    ("offsets", "length"),
    [(b"", 0), (struct.pack("<HQ", 1, 8), 1 << 40)],
    ids=["without message indexes", "with longer ones than the file"],
)
def test_messages_behind_a_chunk_are_read(tmp_path: Path, offsets: bytes, length: int) -> None:
    path = tmp_path / "a.mcap"
    inside, loose = (
        small_record(5, struct.pack("<HIQQ", 1, number, number, 0) + b"x") for number in (7, 9)
    )
    chunk = chunk_of(inside, (7, 7))
    at = 8 + 17 + len(DEFINITIONS)
    statistics = struct.pack("<QHIIIIQQ", 2, 1, 1, 0, 0, 1, 7, 9)
    index = struct.pack("<QQQQ", 7, 7, at, len(chunk)) + text(offsets) + struct.pack("<Q", length)
    summary = DEFINITIONS + small_record(11, statistics + text(struct.pack("<HQ", 1, 2)))
    summary += small_record(8, index + text(b"zstd") + bytes(16))
    path.write_bytes(plain_file(DEFINITIONS, chunk, loose, summary=summary))
    with McapReader(path) as mcap:
        assert [m.sequence for m in mcap.messages()] == [7, 9]


def test_messages_at_time_zero_are_messages(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("/a", "x", 0)
        writer.add_message(channel, 0, b"x", 0)
        writer.finish()  # type: ignore[no-untyped-call]
    with McapReader(path) as mcap:
        assert (mcap.start_ns, mcap.end_ns, mcap.damage) == (0, 0, "")
        assert plain(list(mcap.messages())) == [("/a", 0, 0, 0, b"x")]


def test_an_unknown_compression_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write_file(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\x04\x00\x00\x00zstd", b"\x04\x00\x00\x00brot"))
    with McapReader(path) as mcap:
        assert "compression 'brot' is not known" in mcap.damage


def test_channels_of_another_type_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with McapWriter(path, PosixDisk(), profile="", library="") as mcap:
        one = mcap.schema("A", "ros2msg", b"")
        two = mcap.schema("B", "ros2msg", b"")
        for schema in (one, two, one):
            channel = mcap.channel("/t", schema, "cdr")
            mcap.write(channel, schema, channel, 0, [b"x"])
        mcap.finish()
    with McapReader(path) as reader:
        assert [m.sequence for m in reader.messages()] == [1, 1]
        assert reader.topics["/t"].count == 2
        assert reader.conflicts == [
            "/t: 1 messages of 'B' (cdr) beside those of 'A' (cdr): left out"
        ]


DEFINITION = b"int32 a\nfloat64[3] b\npkg/B c\n" + b"=" * 80 + b"\nMSG: pkg/B\nstring d\n"


@pytest.mark.parametrize(
    ("encoding", "one", "other", "joined"),
    [
        ("ros2msg", DEFINITION, b"# of a\n" + DEFINITION.replace(b" a\n", b"   a  # m\n\n"), True),
        ("ros2msg", DEFINITION, b"int8 A=2\nint8 B = -2 # b\n" + DEFINITION, True),
        ("ros2msg", DEFINITION, DEFINITION.replace(b"int32 a", b"int32 a -2"), True),
        ("ros2msg", DEFINITION, DEFINITION.replace(b"\n", b"\r\n"), True),
        ("ros2msg", DEFINITION, b"", True),
        ("ros2msg", DEFINITION, DEFINITION.replace(b"int32 a", b"int16 a"), False),
        ("ros2msg", DEFINITION, DEFINITION.replace(b"[3]", b"[4]"), False),
        ("ros2msg", DEFINITION, DEFINITION.replace(b"string d", b"string d\nint8 e"), False),
        ("ros2idl", b"struct A { long a; };", b"// b\nstruct A {\n long a; /* c */ };", True),
        ("ros2idl", b"struct A { long a; };", b"struct A { long b; };", False),
        ("jsonschema", b'{"type": "object"}', b'{"type":"object"}', True),
        ("jsonschema", b'{"type": "object"}', b'{"type": "array"}', False),
        ("protobuf", b"a set of descriptors", b"that of a later version", True),
        ("x", b"a", b"b", False),
    ],
)
def test_channels_of_one_type_are_joined(
    tmp_path: Path, encoding: str, one: bytes, other: bytes, joined: bool
) -> None:
    path = tmp_path / "a.mcap"
    with McapWriter(path, PosixDisk(), profile="", library="") as mcap:
        for k, data in enumerate((one, other)):
            channel = mcap.channel("/t", mcap.schema("A", encoding, data), "cdr")
            mcap.write(channel, k, k, 0, [b"x"])
        mcap.finish()
    with McapReader(path) as reader:
        assert [m.sequence for m in reader.messages()] == ([0, 1] if joined else [0])
        assert reader.topics["/t"].count == 1 + joined
        assert len(reader.conflicts) == (not joined)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("mcap")
    write_file(folder / "a.mcap", 12, chunk_bytes=600)
    theirs(folder / "b.mcap", compression=CompressionType.LZ4)
    theirs(folder / "c.mcap", use_chunking=False)
    write_file(folder / "d.mcap", 12, chunk_bytes=600, finish=False)
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@examples(2.5)
@given(st.data())
def test_any_change_ends_in_messages_or_in_one_error(
    samples: list[bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    changed = bytearray(data.draw(st.sampled_from(samples)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        size = data.draw(st.integers(0, 9))
        changed[at : at + size] = data.draw(st.binary(max_size=9))
    path = tmp_path_factory.getbasetemp() / "changed.mcap"
    path.write_bytes(changed)
    try:
        with McapReader(path) as mcap:
            assert sum(1 for _ in mcap.messages()) <= 400
            list(mcap.attachments())
            list(mcap.metadata())
    except FormatError as error:
        assert str(error).startswith(f"{path}: byte ")


@given(st.binary(max_size=300))
def test_arbitrary_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "arbitrary.mcap"
    buffer = BytesIO()
    writer = Writer(buffer)
    writer.start("", "")
    path.write_bytes(buffer.getvalue() + data)
    with McapReader(path) as mcap:
        assert list(mcap.messages()) == []
        assert mcap.damage
