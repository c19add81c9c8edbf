"""The reader: order, time, streams, files in chunks, cut files and damaged ones."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    Compression,
    Compressor,
    DataBlock,
    LayoutBlock,
    LayoutSpec,
    RecordType,
    StreamId,
    VrsReader,
    rewrite_vrs,
)
from recorder.formats.vrs.headers import FILE_HEADER_BYTES, RecordHeader
from recorder.formats.vrs.scan import ChunkedFile, RecordWalk
from recorder.formats.vrs.streams import unpack_description
from tests.campaigns import Selector
from tests.formats.vrs import golden, kit

STEPS = 6
RECORDS = STEPS * kit.RECORDS_PER_STEP + 2


def records_of(path: Path) -> list[tuple[StreamId, int, float, int, bytes]]:
    with VrsReader(path) as reader:
        return [
            (r.stream, r.record_type, r.timestamp_s, r.header().version, r.payload())
            for r in reader
        ]


def test_time_order_and_file_order(tmp_path: Path) -> None:
    with VrsReader(kit.write_file(tmp_path / "a.vrs", STEPS)) as reader:
        assert reader.indexed and reader.tail is None and len(reader) == RECORDS
        times = [record.timestamp_s for record in reader]
        assert times == sorted(times)
        assert [record.number for record in reader] == list(range(RECORDS))
        offsets = [record.offset for record in reader.records(file_order=True)]
        assert offsets == sorted(offsets)
        assert times != [record.timestamp_s for record in reader.records(file_order=True)]
        assert reader[-1].number == RECORDS - 1
        with pytest.raises(IndexError):
            reader[RECORDS]


def test_by_stream_type_and_time(tmp_path: Path) -> None:
    with VrsReader(kit.write_file(tmp_path / "a.vrs", STEPS)) as reader:
        imu = list(reader.records("241-1", RecordType.DATA))
        assert [r.layout(kit.ImuData).sequence for r in imu] == list(range(STEPS))
        assert reader.timestamps_s("241-1", RecordType.DATA).tolist() == [
            r.timestamp_s for r in imu
        ]
        middle = list(reader.records("241-1", RecordType.DATA, start_s=1.15, stop_s=1.65))
        assert [r.number for r in middle] == [r.number for r in imu[1:3]]
        both = (RecordType.CONFIGURATION, RecordType.STATE)
        assert sum(1 for _ in reader.records(types=both)) == 2 + STEPS // 2
        assert reader.counts()[kit.LIDAR_ID, RecordType.DATA] == STEPS // 2
        found = reader.find("241-1", 1.2)
        assert found is not None and found.number == imu[2].number
        assert reader.find("241-1", 99.0) is None
        with pytest.raises(FormatError, match="no stream 1-1, only 214-1, 231-1, 241-1, 245-1"):
            reader.find("1-1", 0)
        with pytest.raises(FormatError, match="TYPE-INSTANCE"):
            reader.stream("camera")


def test_blocks_and_layouts(tmp_path: Path) -> None:
    with VrsReader(kit.write_file(tmp_path / "a.vrs", STEPS)) as reader:
        assert reader.tags == kit.TAGS
        camera = reader.stream(kit.CAMERA_ID)
        assert (camera.tags, camera.serial) == ({"place": "Dach"}, "camera-1")
        assert (camera.name, camera.flavor) == ("RGB Camera Class", "recorder/camera")
        for step, record in enumerate(reader.records(kit.CAMERA_ID, RecordType.DATA)):
            layout, image = record.blocks()
            assert isinstance(layout, LayoutBlock) and isinstance(image, DataBlock)
            assert layout["exposure_time"] == 0.001 * step
            assert image.array().shape == (kit.HEIGHT, kit.WIDTH, 3)  # from the configuration
            assert image.array().tobytes() == kit.pixels(step)
            data = record.layout(kit.CameraData)
            assert data.gains.tolist() == list(range(step % 4)) and data.missing == frozenset()
            with pytest.raises(FormatError, match="has 1 layouts"):
                record.layout(kit.CameraData, 1)
        audio = reader.find(kit.AUDIO_ID, 0)
        assert audio is not None
        samples = audio.blocks()[1]
        assert isinstance(samples, DataBlock) and samples.array().shape == (10, 2)
        for record in reader.records(kit.LIDAR_ID):
            step = record.layout(kit.ImuData).sequence
            parts = [b.data for b in record.blocks() if isinstance(b, DataBlock)]
            assert parts == [b"sweep", bytes([step]) * (step % 7), b"end"]


@pytest.mark.parametrize("name", golden.FILES)
def test_files_of_the_cpp_writer(name: str) -> None:
    with VrsReader(golden.FOLDER / name) as reader:
        assert reader.indexed and reader.tail is None and reader.tags == golden.TAGS
        assert [str(s) for s in reader.streams] == ["65500-1", "65500-2", "65500-3"]
        assert len(reader) == len(golden.STREAMS) * (golden.FRAMES + 1)
        late = golden.FILES[name]["late"]
        kinds = set[int]()
        for number, stream in enumerate(reader.streams.values()):
            assert stream.name == "Unit Test 1" and len(stream.serial) == 36
            assert stream.tags == ({} if late else golden.STREAM_TAGS)
            config, *data = reader.records(stream.id)
            assert config.record_type == RecordType.CONFIGURATION and config.timestamp_s == 0.5
            if late:  # the writer never said what the records are
                assert config.blocks() == [] and len(config.payload()) == 12
                continue
            assert layout_values(config.blocks()[0]) == golden.configuration()
            for frame, record in enumerate(data):
                kinds.add(record.header().compression)
                assert record.timestamp_s == golden.timestamp_s(number, frame)
                blocks = record.blocks()
                for at in range(2 if number == 2 else 1):
                    values = layout_values(blocks[at])
                    assert values == golden.metadata(number, frame, at)
                if number:
                    image = blocks[-1]
                    assert isinstance(image, DataBlock)
                    np.testing.assert_array_equal(image.array(), golden.image(number, frame))
        wanted = {"NONE": 0, "LZ4_FAST": 1, "ZSTD_MEDIUM": 2}[golden.FILES[name]["compression"]]
        assert late or wanted in kinds


def declarations(path: Path) -> list[str]:
    with VrsReader(path) as reader:
        tags = [item for s in reader.streams.values() for item in s.vrs_tags.items()]
    return [value for tag, value in tags if tag.startswith("DL:")]


@pytest.mark.parametrize("name", [n for n in golden.FILES if not golden.FILES[n]["late"]])
def test_declarations_are_written_as_the_cpp_writer_does(name: str) -> None:
    texts = declarations(golden.FOLDER / name)
    assert len(texts) == 7
    for text in texts:
        assert LayoutSpec.from_json(text).to_json() == text


def test_declarations_of_a_real_recording(shared_data: Path) -> None:
    for text in declarations(shared_data / "vrs" / "aria_recording.vrs"):
        assert LayoutSpec.from_json(text).to_json() == text


def layout_values(block: object) -> dict[str, object]:
    assert isinstance(block, LayoutBlock)
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in block.as_dict().items()}


def test_a_real_recording(shared_data: Path) -> None:
    with VrsReader(shared_data / "vrs" / "aria_recording.vrs") as reader:
        assert reader.indexed and reader.tail is None and len(reader) == 785
        imu = reader.find("1202-1", 86.347942362)
        assert imu is not None
        layout = imu.blocks()[0]
        assert isinstance(layout, LayoutBlock)
        assert layout["capture_timestamp_ns"] == 86347942362
        np.testing.assert_allclose(
            layout["accelerometer"], [-7.893683, 2.1428106, 2.6599581], rtol=1e-6
        )
        audio = reader.find("231-1", 0)
        assert audio is not None
        samples = audio.blocks()[1]
        assert isinstance(samples, DataBlock) and samples.array().shape == (4096, 7)
        assert reader.header.version == b"VRS2"  # its index, compressed, lies before the records


@pytest.mark.parametrize("kind", list(Compression))
def test_rewriting_keeps_all(tmp_path: Path, kind: Compression) -> None:
    source = kit.write_file(tmp_path / "a.vrs", STEPS)
    assert rewrite_vrs(source, tmp_path / "b.vrs", PosixDisk(), compressor=Compressor(kind))
    assert records_of(tmp_path / "b.vrs") == records_of(source)
    with VrsReader(source) as a, VrsReader(tmp_path / "b.vrs") as b:
        assert (a.tags, a.streams.keys()) == (b.tags, b.streams.keys())
        for stream in a.streams:
            assert a.streams[stream].vrs_tags == b.streams[stream].vrs_tags
            assert a.streams[stream].tags == b.streams[stream].tags


# --- files in chunks, and other kinds of index


def test_chunks(tmp_path: Path) -> None:
    whole = kit.write_file(tmp_path / "whole.vrs", STEPS)
    expected, data = records_of(whole), whole.read_bytes()
    rng = np.random.default_rng(0)
    for name, following in (("a.vrs", "a.vrs_{}"), ("b_0", "b_{}")):
        cuts = [0, *sorted(rng.integers(600, len(data), 3).tolist()), len(data)]
        for number in range(4):
            chunk = name if not number else following.format(number)
            (tmp_path / chunk).write_bytes(data[cuts[number] : cuts[number + 1]])
        assert records_of(tmp_path / name) == expected
    (tmp_path / "a.vrs_2").unlink()  # what follows a missing one is not of the file
    with VrsReader(tmp_path / "a.vrs") as reader:
        assert 0 < len(reader) < RECORDS and not reader.indexed


@pytest.mark.parametrize("closed", [True, False])
def test_an_index_in_the_first_chunk(tmp_path: Path, closed: bool) -> None:
    path = kit.split_file(tmp_path, closed=closed)
    assert records_of(path) == records_of(tmp_path / "whole.vrs")
    with VrsReader(path) as reader:
        assert reader.indexed == closed


def test_an_unfinished_index_in_the_first_chunk(tmp_path: Path) -> None:
    path = kit.split_file(tmp_path, closed=False)
    head = path.read_bytes()
    for cut in (1, 30, 60, 100):  # the last frame is not whole: the rest is walked
        path.write_bytes(head[:-cut])
        assert records_of(path) == records_of(tmp_path / "whole.vrs")


def test_an_index_in_the_first_chunk_of_which_nothing_is_whole(tmp_path: Path) -> None:
    path = kit.split_file(tmp_path, closed=False, frames=1)
    path.write_bytes(path.read_bytes()[:-1])
    assert records_of(path) == records_of(tmp_path / "whole.vrs")


# --- cut and damaged files


@pytest.mark.parametrize("finished", [True, False])
def test_cut_at_every_byte(tmp_path: Path, finished: bool, select: Selector) -> None:
    path = kit.write_file(tmp_path / "a.vrs", 2, finish=finished)
    whole = path.read_bytes()
    expected = sorted(records_of(path), key=lambda r: r[2])
    with VrsReader(path) as reader:
        ends = sorted(record.offset + record.size for record in reader)
        records_end = reader.end
    first, *_ = all_ends = [end for end in kit.record_ends(path) if end <= records_end]
    cuts = [*range(0, first - 40, 17), *range(first - 40, len(whole))]
    for cut in select(reversed(cuts), 150):
        os.truncate(path, cut)
        if cut < first:
            with pytest.raises(FormatError, match=r"a\.vrs"):
                VrsReader(path)
            continue
        with VrsReader(path) as reader:
            count = sum(end <= cut for end in ends)
            assert len(reader) == count and not reader.indexed
            # A finished file says of an index that is not there; one that is not ends anywhere.
            assert (reader.tail is None) == (not finished and cut in all_ends), cut
            assert reader.end == max(end for end in all_ends if end <= cut)
            if count == len(ends):
                assert records_of(path) == expected


@pytest.mark.parametrize("tail", [bytes(32), bytes(4096), b"\xff" * 100, b"garbage" * 40])
def test_a_tail_of_garbage_costs_one_record(tmp_path: Path, tail: bytes) -> None:
    path = kit.write_file(tmp_path / "a.vrs", STEPS, finish=False)
    with path.open("ab") as file:
        file.write(tail)
    with VrsReader(path) as reader:
        assert len(reader) == RECORDS - 1
        assert reader.tail is not None and "no record" in reader.tail


def test_what_is_no_vrs_file(tmp_path: Path) -> None:
    path = tmp_path / "a.vrs"
    for data in (b"", b"x", bytes(79), bytes(80), b"x" * 500):
        path.write_bytes(data)
        with pytest.raises(FormatError, match=r"a\.vrs.*no VRS file"):
            VrsReader(path)
    with pytest.raises(FormatError, match="no such file"):
        VrsReader(tmp_path / "b.vrs")
    with pytest.raises(FormatError, match=str(tmp_path)):
        VrsReader(tmp_path)


@pytest.mark.parametrize("at", [24, 32, 40])
@pytest.mark.parametrize("value", [-1, -(1 << 63), (1 << 63) - 1, 81, 5])
def test_offsets_in_the_header_that_cannot_be(tmp_path: Path, at: int, value: int) -> None:
    path = kit.write_file(tmp_path / "a.vrs", STEPS)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack("<q", value))
    if at == 24:  # an index that is not there is made again
        with VrsReader(path) as reader:
            assert len(reader) == RECORDS and not reader.indexed
    else:
        read_all(path)


def read_all(path: Path) -> int:
    """Read whatever there is; every fault is a FormatError that names the file."""
    count = 0
    try:
        reader = VrsReader(path)
    except FormatError as error:
        assert path.name in str(error)
        return 0
    with reader:
        for record in reader:
            try:
                for block in record.blocks():
                    if isinstance(block, DataBlock):
                        read_array(block)
                count += 1
            except FormatError as error:
                assert path.name in str(error)
    return count


def read_array(block: DataBlock) -> None:
    try:
        block.array()
    except FormatError as error:
        assert "no array" in str(error)


SOURCES = ["ours", "ours lz4", "ours zstd", *golden.FILES]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("sources")
    files = {name: (golden.FOLDER / name).read_bytes() for name in golden.FILES}
    for kind in Compression:
        name = "ours" if not kind else f"ours {kind.name.lower()}"
        path = kit.write_file(folder / f"{kind}.vrs", 3, compressor=Compressor(kind))
        files[name] = path.read_bytes()
    return files


@given(data=st.data())
def test_flipped_bytes_never_crash(
    data: st.DataObject, sources: dict[str, bytes], tmp_path: Path
) -> None:
    whole = bytearray(sources[data.draw(st.sampled_from(SOURCES))])
    for _ in range(data.draw(st.integers(1, 6))):
        # Headers, tags and index are where a flip does most.
        bound = data.draw(st.sampled_from([200, 1500, len(whole)]))
        at = data.draw(st.integers(0, min(bound, len(whole)) - 1))
        at = data.draw(st.sampled_from([at, len(whole) - 1 - at]))
        whole[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, whole[at] ^ 0x10]))
    path = tmp_path / "damaged.vrs"
    path.write_bytes(whole)
    read_all(path)


@given(data=st.data())
def test_cut_and_spliced_files_never_crash(
    data: st.DataObject, sources: dict[str, bytes], tmp_path: Path
) -> None:
    whole = sources[data.draw(st.sampled_from(SOURCES))]
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    path = tmp_path / "damaged.vrs"
    path.write_bytes(whole[:start] + whole[stop:])
    read_all(path)


@pytest.mark.parametrize(
    ("at", "damage", "text"),
    [
        (32, bytes(20), "stream 214-1 at byte {}: is no"),
        (28, bytes([255] * 4), "cannot hold|not of 4294967295"),  # would ask for gigabytes
    ],
)
@pytest.mark.parametrize("kind", [Compression.LZ4, Compression.ZSTD])
def test_data_that_do_not_decompress(
    tmp_path: Path, kind: Compression, at: int, damage: bytes, text: str
) -> None:
    path = kit.write_file(tmp_path / "a.vrs", 4, compressor=Compressor(kind))
    with VrsReader(path) as reader:
        packed = next(r for r in reader if r.header().compression)
    with path.open("r+b") as file:
        file.seek(packed.offset + at)
        file.write(damage)
    with VrsReader(path) as reader:
        assert len(reader) == 4 * kit.RECORDS_PER_STEP + 2
        with pytest.raises(FormatError, match=text.format(packed.offset)):
            reader[packed.number].payload()
        assert reader[packed.number + 1].payload()


@pytest.mark.parametrize("missing", [1, 10, 31])
def test_how_much_a_cut_record_lacks_is_told(tmp_path: Path, missing: int) -> None:
    path = kit.write_file(tmp_path / "a.vrs", STEPS)
    with VrsReader(path) as reader:
        last = max(reader.records(file_order=True), key=lambda record: record.offset)
        size = RecordHeader.unpack(path.read_bytes(), last.offset).size
        count = len(reader)
    os.truncate(path, last.offset + size - missing)
    with VrsReader(path) as reader:
        assert len(reader) == count - 1
        assert f"a record of {size} bytes that lacks {missing}" in str(reader.tail)
    os.truncate(path, last.offset + missing)
    with VrsReader(path) as reader:
        assert f"{missing} bytes that are less than a record's header" in str(reader.tail)


@pytest.mark.parametrize("version", [1, 2])
def test_a_description_with_more_entries_than_it_can_hold(version: int) -> None:
    """A stream takes ten bytes at least: nobody counts to four thousand millions first."""
    for count in (2, 3, 1 << 20, (1 << 32) - 1):
        data = struct.pack("<I", count) + bytes(19)
        with pytest.raises(FormatError, match=f"^here: description record: {count} entries in 23"):
            unpack_description(data, version, "here")
    streams, tags = unpack_description(struct.pack("<I", 0) + bytes(8), version, "here")
    assert (streams, tags) == ({}, {})


def walked(path: Path) -> tuple[list[int], RecordWalk]:
    """Offsets of the records that a walk finds from the description on, and the walk."""
    with contextlib.closing(ChunkedFile(path, [path])) as file:
        walk = RecordWalk(file, FILE_HEADER_BYTES, 0)
        return [offset for offset, _ in walk], walk


@pytest.mark.parametrize("which", [1, 5, -1])
@pytest.mark.parametrize("off", [-1, 1])
def test_of_two_records_that_disagree_neither_is_believed(
    tmp_path: Path, which: int, off: int
) -> None:
    """A record names the size of the one before it: nobody can tell which of the two is wrong."""
    path = kit.write_file(tmp_path / "a.vrs", STEPS)
    every, walk = walked(path)
    assert walk.fault is None and len(every) > 10
    raw, at = bytearray(path.read_bytes()), every[which]
    header = RecordHeader.unpack(bytes(raw), at)
    struct.pack_into("<I", raw, at + 4, header.previous_size + off)
    path.write_bytes(raw)
    found, walk = walked(path)
    before = every.index(at) - 1
    assert found == every[:before]
    assert walk.end == every[before]
    assert walk.last_size == (every[before] - every[before - 1] if before else 0)
    words = f"previous record of {header.previous_size + off} bytes, not {header.previous_size}"
    assert words in str(walk.fault)
