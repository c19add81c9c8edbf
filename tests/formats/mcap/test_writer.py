"""What the writer writes, read by the package ``mcap``."""

from __future__ import annotations

import errno
import struct
import tracemalloc
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import NonSeekingReader, make_reader
from mcap.records import Chunk, ChunkIndex, Footer, MessageIndex, Statistics, SummaryOffset
from mcap.stream_reader import StreamReader, get_chunk_data_stream

from recorder.common.errors import FormatError
from recorder.common.files import PosixDisk
from recorder.formats.mcap.index import check_file
from recorder.formats.mcap.writer import McapWriter
from tests.archives.contract import fill_up
from tests.formats.mcap.build import START_NS, write_file
from tests.support.changes import flip


def read_all(path: Path) -> list[tuple[str, int, int, int, bytes]]:
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        return [
            (channel.topic, m.sequence, m.log_time, m.publish_time, m.data)
            for _, channel, m in reader.iter_messages()
        ]


def test_every_message_comes_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    sent = write_file(path)
    assert len(sent) == 600
    assert read_all(path) == sent


def test_the_data_section_has_its_crc(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    sent = write_file(path)
    with path.open("rb") as file:
        messages = list(NonSeekingReader(file, validate_crcs=True).iter_messages())
    assert len(messages) == len(sent)
    flip(path, path.read_bytes().index(b"version: 1"))  # of the attachment: no chunk has it
    with path.open("rb") as file, pytest.raises(ValueError, match="crc validation failed"):
        list(NonSeekingReader(file, validate_crcs=True).iter_messages())


def test_the_summary_has_its_crc_and_offsets(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write_file(path)
    data = path.read_bytes()
    with path.open("rb") as file:
        records = list(StreamReader(file, emit_chunks=True).records)
    footer = records[-1]
    assert isinstance(footer, Footer)
    assert zlib.crc32(data[footer.summary_start : -12]) == footer.summary_crc
    groups = {r.group_opcode: r for r in records if isinstance(r, SummaryOffset)}
    assert sorted(groups) == [0x03, 0x04, 0x08, 0x0A, 0x0B, 0x0D]
    for opcode, group in groups.items():
        assert data[group.group_start] == opcode
    ends = sorted(g.group_start + g.group_length for g in groups.values())
    assert ends[-1] == footer.summary_offset_start


def test_statistics_attachments_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    sent = write_file(path)
    with path.open("rb") as file:
        reader = make_reader(file)
        summary = reader.get_summary()
        (attachment,) = reader.iter_attachments()
        (metadata,) = reader.iter_metadata()
    assert summary is not None
    statistics = summary.statistics
    assert statistics is not None
    assert len(summary.chunk_indexes) > 10
    assert statistics == Statistics(
        attachment_count=1,
        channel_count=2,
        channel_message_counts={1: 300, 2: 300},
        chunk_count=len(summary.chunk_indexes),
        message_count=600,
        message_end_time=sent[-1][2],
        message_start_time=sent[0][2],
        metadata_count=1,
        schema_count=1,
    )
    assert (attachment.name, attachment.data) == ("config.yaml", b"version: 1\n")
    assert (attachment.log_time, attachment.create_time) == (START_NS, 5)
    assert (metadata.name, metadata.metadata) == ("foxglove", {"deviceName": "rig-1"})


def test_two_chunks_are_open_and_only_one_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write_file(path)
    with path.open("rb") as file:
        records = list(StreamReader(file, emit_chunks=True).records)
    chunks = [r for r in records if isinstance(r, Chunk)]
    by_kind = {c.compression for c in chunks}
    assert by_kind == {"", "zstd"}
    packed = [c for c in chunks if c.compression == "zstd"]
    assert all(len(c.data) < c.uncompressed_size / 2 for c in packed)
    indexes = [r for r in records if isinstance(r, ChunkIndex)]
    assert {tuple(i.message_index_offsets) for i in indexes} == {(1,), (2,)}
    # Each is full but for the last of its kind.
    for kind in ("", "zstd"):
        sizes = [c.uncompressed_size for c in chunks if c.compression == kind]
        assert all(4096 <= size < 2 * 4096 for size in sizes[:-1])
    counts = [len(r.records) for r in records if isinstance(r, MessageIndex)]
    assert sum(counts) == 600


def test_indexes_of_messages_lead_to_them(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    sent = write_file(path)
    with path.open("rb") as file:
        records = list(StreamReader(file, emit_chunks=True).records)
    found = []
    chunk: Chunk | None = None
    for record in records:
        if isinstance(record, Chunk):
            chunk = record
        elif isinstance(record, MessageIndex):
            assert chunk is not None
            data, _ = get_chunk_data_stream(chunk, validate_crc=True)
            whole = data.read(chunk.uncompressed_size)
            for log_ns, at in record.records:
                assert whole[at] == 0x05
                channel, sequence, log, publish = struct.unpack_from("<HIQQ", whole, at + 9)
                assert (channel, log) == (record.channel_id, log_ns)
                found.append((["/imu", "/camera"][channel - 1], sequence, log, publish))
            times = [log_ns for log_ns, _ in record.records]  # the only channel of its chunk
            assert (chunk.message_start_time, chunk.message_end_time) == (min(times), max(times))
    assert sorted(found) == sorted(message[:4] for message in sent)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda w: w.counts.update({1: 299}), "the statistics are not those of the data"),
        (lambda w: setattr(w, "_attachments", 1), "the statistics are not those of the data"),
        (lambda w: setattr(w, "chunk_count", 0), "does not list all of the data"),
        (lambda w: w._schemas.clear(), "other schemas or channels than the data"),
        (lambda w: w._metadata_indexes.end(), "other attachments or metadata than the data"),
        (lambda w: w._chunk_indexes.end(), "the index of chunk 0 is wrong"),
    ],
)
def test_a_summary_that_does_not_fit_is_found(
    tmp_path: Path, change: Callable[[Any], Any], text: str
) -> None:
    path = tmp_path / "a.mcap"
    with McapWriter(path, PosixDisk(), profile="", library="", chunk_bytes=500) as mcap:
        channel = mcap.channel("/a", mcap.schema("A", "x", b""), "x")
        mcap.metadata("m", {})
        for k in range(300):
            mcap.write(channel, k, k, k, [b"x"])
        while mcap._pending:
            mcap._write_sealed(0)
        change(mcap)
        mcap.finish()
    with pytest.raises(FormatError, match=text):
        list(check_file(path))


def test_a_large_message_has_a_chunk_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with McapWriter(path, PosixDisk(), profile="", library="", chunk_bytes=1000) as mcap:
        channel = mcap.channel("/a", 0, "x")
        for k, size in enumerate((100, 100_000, 100)):
            mcap.write(channel, k, k, k, [bytes(size)])
        mcap.finish()
    with path.open("rb") as file:
        chunks = [r for r in StreamReader(file, emit_chunks=True).records if isinstance(r, Chunk)]
    assert [c.uncompressed_size for c in chunks] == [131, 100_031, 131]
    assert [len(m[4]) for m in read_all(path)] == [100, 100_000, 100]


def test_equal_schemas_are_one(tmp_path: Path) -> None:
    with McapWriter(tmp_path / "a.mcap", PosixDisk(), profile="ros2", library="x") as mcap:
        assert mcap.schema("a", "ros2msg", b"1") == mcap.schema("a", "ros2msg", b"1") == 1
        assert mcap.schema("a", "ros2msg", b"2") == 2
        with pytest.raises(ValueError, match=r"a.mcap: /t: there is no schema 3"):
            mcap.channel("/t", 3, "cdr")
        mcap.finish()
    with (tmp_path / "a.mcap").open("rb") as file:
        header = make_reader(file).get_header()
    assert (header.profile, header.library) == ("ros2", "x")


def test_times_out_of_order_and_long_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with McapWriter(path, PosixDisk(), profile="", library="") as mcap:
        channel = mcap.channel("/a", 0, "x")
        for k, log_ns in enumerate((50, 10, 90, 20)):
            mcap.write(channel, (1 << 32) + k, log_ns, 3, [b""])
        mcap.finish()
        assert mcap.interval_ns == (10, 90)
    assert [m[1:4] for m in read_all(path)] == [(1, 10, 3), (3, 20, 3), (0, 50, 3), (2, 90, 3)]


def test_a_file_without_messages(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    assert write_file(path, 0) == []
    assert read_all(path) == []
    (*_,) = check_file(path)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path, payload = tmp_path / "a.mcap", bytes(50_000)

    def peak(count: int) -> int:
        path.unlink(missing_ok=True)
        tracemalloc.start()
        try:
            with McapWriter(path, PosixDisk(), profile="", library="", chunk_bytes=1 << 18) as mcap:
                channels = [mcap.channel(f"/{c}", 0, "x", compress=c == "a") for c in "ab"]
                for k in range(count):
                    mcap.write(channels[k % 2], k, k, k, [bytearray(payload)])
                mcap.finish()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(800) < peak(100) + 400_000  # 35 MB more are written


def test_a_full_disk_is_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_up(monkeypatch, 20_000)
    with pytest.raises(OSError, match="No space left") as caught:
        write_file(tmp_path / "a.mcap", 3000)
    assert caught.value.errno == errno.ENOSPC


def test_parts_are_not_copied_before_they_are_written(tmp_path: Path) -> None:
    part = bytearray(b"first")
    with McapWriter(tmp_path / "a.mcap", PosixDisk(), profile="", library="") as mcap:
        channel = mcap.channel("/a", 0, "x", compress=False)
        mcap.write(channel, 0, 0, 0, [part])
        part[:] = b"later"
        mcap.finish()
    assert read_all(tmp_path / "a.mcap")[0][4] == b"later"


@pytest.mark.parametrize("compress", [True, False])
def test_a_chunk_that_waits_holds_what_is_to_be_written_and_no_more(
    tmp_path: Path, compress: bool
) -> None:
    """Three chunks may wait, and a point cloud has 3 MB."""
    part = np.zeros(3000, np.uint8)
    held = weakref.ref(part)
    path = tmp_path / "a.mcap"
    with McapWriter(path, PosixDisk(), profile="", library="", chunk_bytes=1000) as mcap:
        mcap.write(mcap.channel("/a", 0, "x", compress=compress), 0, 0, 0, [part.data])
        del part
        mcap._pending[0].result()
        assert (held() is None) == compress
        mcap.finish()
    assert read_all(path)[0][4] == bytes(3000)
