"""``topics`` with the source ``vrs:``: the records of a file, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from drivers.kit.driver import Driver, Item, Sample
from drivers.kit.runner import make_driver
from drivers.topics.driver import TopicsDriver
from recorder.common.errors import SourceError
from recorder.common.files import PosixDisk
from recorder.formats.recorded_topic import find_topic
from recorder.formats.vrs import (
    Compression,
    Compressor,
    ImageContent,
    RecordLayout,
    RecordType,
    StreamSpec,
    VrsReader,
    VrsWriter,
)
from recorder.formats.vrs.headers import (
    DESCRIPTION_TYPE_ID,
    DESCRIPTION_VERSION,
    RECORD_HEADER_BYTES,
    RecordHeader,
)
from recorder.formats.vrs.streams import unpack_description
from tests.formats.vrs.foreign import COUNT, START_S, STEP_S, jpeg, write_foreign, write_records
from tests.h264 import encode
from tests.support.devices import causes, play_out

START_NS = round(START_S * 1e9)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_foreign(tmp_path_factory.mktemp("vrs") / "other.vrs", Compression.ZSTD)


def make(path: Path, stream: str = "", **options: Any) -> Driver:
    address = f"{path}#{stream}" if stream else str(path)
    entry = {"name": "vrs", "scheme": "vrs", "address": address, "pace": "max"}
    return make_driver(TopicsDriver, entry | {"options": options})


def messages(items: Iterable[Item]) -> dict[str, list[tuple[int, RecordHeader, bytes]]]:
    """By stream: stamp, header and data of each record."""
    found: dict[str, list[tuple[int, RecordHeader, bytes]]] = {}
    for item in items:
        assert isinstance(item, Sample)
        for t_ns, message in zip(item.t_ns.tolist(), item.data["message"], strict=True):
            header = RecordHeader.unpack(bytes(message))
            found.setdefault(item.stream, []).append(
                (t_ns, header, bytes(message)[RECORD_HEADER_BYTES:])
            )
    return found


def test_every_record_is_a_message_with_its_own_header(path: Path) -> None:
    driver = make(path)
    specs = {spec.name: spec for spec in driver.open()}
    driver.close()
    items, error = play_out(driver)
    found = messages(items)
    assert error is None and found.keys() == specs.keys()
    ((_, head, tags),) = found.pop("vrs_description")
    with VrsReader(path) as vrs:
        assert (head.type_id, head.version) == (DESCRIPTION_TYPE_ID, DESCRIPTION_VERSION)
        streams, file_tags = unpack_description(tags, head.version, path)
        assert file_tags == vrs.tags and streams.keys() == vrs.streams.keys()
        assert sum(map(len, found.values())) == len(vrs)
        for stream in vrs.streams.values():
            name = f"vrs_{stream.id.type_id}_{stream.id.instance}"
            about = find_topic(specs[name])
            assert about is not None and (about.name, about.type_name) == (
                f"/{stream.id}",
                stream.flavor,
            )
            assert json.loads(about.definition) == {
                "vrs_tags": stream.vrs_tags,
                "tags": stream.tags,
            }
            records = list(vrs.records(stream.id))
            assert specs[name].settings["records"] == len(records) == len(found[name])
            for record, (_, header, data) in zip(records, found[name], strict=True):
                assert data == record.payload()
                assert header == RecordHeader(
                    RECORD_HEADER_BYTES + len(data),
                    0,
                    stream.id.type_id,
                    record.header().version,
                    record.timestamp_s,
                    stream.id.instance,
                    record.record_type,
                    0,
                    0,
                )
    stamps = [t_ns for t_ns, header, _ in found["vrs_214_1"]]
    steps = [START_NS + round(at * STEP_S * 1e9) for at in range(COUNT)]
    assert stamps == sorted([START_NS, START_NS + 110_000_000, *steps])
    assert driver.origin_ns == START_NS


def test_records_lack_the_pictures_that_a_camera_has(path: Path) -> None:
    driver = make(path, without_pictures=["200-1", "214-1", "1201-1", "400-1"])
    whole = messages(play_out(make(path))[0])
    cut = messages(play_out(driver)[0])
    for name in whole.keys() - {"vrs_200_1", "vrs_214_1", "vrs_1201_1"}:
        assert cut[name] == whole[name]
    assert all(data == b"" for _, _, data in cut["vrs_1201_1"])
    pictures = 0
    for (_, header, data), (_, whole_header, full) in zip(
        cut["vrs_214_1"], whole["vrs_214_1"], strict=True
    ):
        assert header == whole_header
        if header.record_type == RecordType.DATA:
            begin = full.index(jpeg(pictures))
            assert data == full[:begin] + b"five!"
            pictures += 1
        else:
            assert data == full
    assert pictures == COUNT
    # Video before its first keyframe is in no camera's stream.
    lengths = [len(data) for _, _, data in cut["vrs_200_1"]]
    assert lengths[3:] == [4] * (COUNT - 3) and all(length > 4 for length in lengths[:3])


def test_a_stream_is_chosen_by_its_id(path: Path) -> None:
    for driver, names in (
        (make(path, "231-1"), ["vrs_231_1"]),
        (make(path, topics=["/214-*", "/400-1"], exclude=["/214-2"]), ["vrs_214_1", "vrs_400_1"]),
    ):
        assert [spec.name for spec in driver.open()] == names
        driver.close()
    known = "its streams: description, 200-1, 214-1, 214-2, 231-1, 400-1, 500-1, 1201-1, 1202-1"
    for wrong in (make(path, "7-1"), make(path, topics=["/7-1"])):
        with pytest.raises(SourceError, match=f"has no stream '7-1'; {known}"):
            wrong.open()
    with pytest.raises(SourceError, match="has no stream to record"):
        make(path, topics=["/7-*"]).open()


def test_a_cut_file_plays_to_the_cut_and_says_so(path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.vrs"
    cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    items, error = play_out(make(cut))
    assert error is None
    samples = [item for item in items if isinstance(item, Sample)]
    with VrsReader(cut) as vrs:
        assert 1 < sum(item.count for item in samples) == len(vrs) + 1
        assert set(causes(items)) == {("truncated", None)}
        assert len(items) - len(samples) == len({stream for stream, _ in vrs.counts()}) + 1


def test_files_without_times_or_with_bad_records_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "text.vrs").write_text("no VRS" * 50)
    for path, reason in (
        (tmp_path / "none.vrs", "no such file"),
        (tmp_path / "text.vrs", "is no VRS file"),
        (write_records(tmp_path / "empty.vrs"), "has no data record"),
        (write_records(tmp_path / "late.vrs", (1.0, b"a"), (1e300, b"b")), "from 1 to 1e.300 s"),
    ):
        with pytest.raises(SourceError, match=reason):
            make(path).open()


def test_a_damaged_record_is_a_loss_and_the_rest_is_played(path: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.vrs"
    data = bytearray(path.read_bytes())
    with VrsReader(path) as vrs:
        record = list(vrs.records("214-2"))[3]
        total = len(vrs)
    data[record.offset + RECORD_HEADER_BYTES : record.offset + record.size] = bytes(
        record.size - RECORD_HEADER_BYTES
    )
    damaged.write_bytes(data)
    items, error = play_out(make(damaged))
    assert error is None and causes(items) == [("corrupt", 1)]
    assert sum(item.count for item in items if isinstance(item, Sample)) == total


@pytest.mark.parametrize("compressor", [None, Compressor(Compression.ZSTD)])
@pytest.mark.parametrize(("limit", "most"), [("MOST_READ", 968), ("MOST_BYTES", 1000)])
def test_a_record_that_is_too_large_is_a_loss(
    limit: str,
    most: int,
    compressor: Compressor | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"drivers.topics.vrs_records.{limit}", most)
    records = [(1.0, bytes(968)), (2.0, bytes(969)), (3.0, b"a")]
    path = write_records(tmp_path / "large.vrs", *records, compressor=compressor)
    items, error = play_out(make(path))
    assert error is None and causes(items) == [("corrupt", 1)]
    assert sum(item.count for item in items if isinstance(item, Sample)) == 2 + 1


def test_a_record_may_be_large_by_the_picture_that_a_camera_has(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.topics.vrs_records.MOST_BYTES", 700)
    items, _ = play_out(make(path, "214-2"))
    assert causes(items) == [("corrupt", 1)] * COUNT
    items, _ = play_out(make(path, "214-2", without_pictures=["214-2"]))
    assert causes(items) == []


def test_pictures_that_the_camera_loses_stay_in_the_records(tmp_path: Path) -> None:
    """Of other sizes, after damage until the next keyframe, and what the camera completes."""
    small = bytes(cv2.imencode(".jpg", np.zeros((8, 8, 3), np.uint8))[1])
    units, wide = encode(15), encode(1, (128, 64))
    bare = units[5][units[5].index(b"\0\0\1\x65") :]  # a keyframe without its parameter sets
    video = [*units[:2], b"\0\0\1\x09\x10", units[3], bare, units[6], *wide, units[7], units[10]]
    jpg = ImageContent(format="jpg")
    h264 = ImageContent(format="video", codec="H.264")
    specs = [
        StreamSpec(214, "jpeg", {(RecordType.DATA, 1): RecordLayout(jpg)}),
        StreamSpec(214, "video", {(RecordType.DATA, 1): RecordLayout(h264)}),
    ]
    path = tmp_path / "a.vrs"
    writer = VrsWriter.create(path, PosixDisk(), specs)
    jpegs, videos = writer.streams.values()
    for at, data in enumerate((jpeg(0), small, jpeg(1))):
        jpegs.write(RecordType.DATA, 1.0 + at, data)
    for at, unit in enumerate(video):
        videos.write(RecordType.DATA, 1.0 + at, unit)
    writer.finish()
    for file in writer.files:
        file.close()
    found = messages(play_out(make(path, without_pictures=["214-1", "214-2"]))[0])
    assert [data for _, _, data in found["vrs_214_1"]] == [b"", small, b""]
    kept = [data for _, _, data in found["vrs_214_2"]]
    assert kept == [b"", b"", video[2], units[3], bare, b"", wide[0], units[7], b""]
