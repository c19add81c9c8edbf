"""`recorder export FILE.vrs STREAM`: tables, pictures and blocks of any VRS file."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.archives.export import Wanted
from recorder.archives.export.vrs_file import export_vrs
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.cli import main
from recorder.codecs.jpeg import jpeg_size
from recorder.common.errors import FormatError
from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    CustomContent,
    DataLayout,
    ImageContent,
    PixelFormat,
    RecordableType,
    RecordLayout,
    RecordType,
    StreamSpec,
    Value,
    Vector,
    VrsWriter,
)
from recorder.formats.vrs.layout import uint32
from recorder.session.part import Moment
from recorder.session.reader import Session
from tests.h264 import decoded
from tests.session.build import Builder, camera_spec, imu_spec, video_camera_spec

COUNT = 12


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A session, and its VRS file."""
    builder = Builder(tmp_path_factory.mktemp("export") / "drive")
    builder.add(camera_spec(), count=COUNT)
    builder.add(video_camera_spec("video"), count=COUNT)
    builder.add(imu_spec(), count=40)
    path = builder.close()
    (result,) = finalize(path, [ArchiveRequest("vrs", {})])
    return path, result.files[0]


def run(vrs: Path, stream: str, ending: str, out: Path, *words: str) -> int:
    return main(["export", str(vrs), stream, "--to", ending, "--out", str(out), *words])


def test_values_become_a_table(drive: tuple[Path, Path], tmp_path: Path) -> None:
    path, vrs = drive
    assert run(vrs, "imu", "csv", tmp_path / "imu.csv", "--every", "4") == 0
    with (tmp_path / "imu.csv").open() as file:
        rows = list(csv.DictReader(file))
    with Session(path) as session:
        stream = session.streams["imu"]
        acc, ts = stream.read(channels=["acc"])["acc"][::4], stream.read(channels=["ts"])["ts"][::4]
    assert [float(row["timestamp_s"]) for row in rows] == ts.tolist()
    read = [[float(row[f"acc[{at}]"]) for at in range(3)] for row in rows]
    assert np.array_equal(np.array(read, np.float32), acc)
    assert [int(row["seq"]) for row in rows] == list(range(0, 40, 4))
    words = ("--channels", "acc", "--from", "0.1")
    assert run(vrs, "241-1", "csv", tmp_path / "acc.csv", *words) == 0
    head, *rest = (tmp_path / "acc.csv").read_text().splitlines()
    assert head == "timestamp_s,acc[0],acc[1],acc[2]"
    assert 0 < len(rest) < 40


def test_jpegs_are_extracted_as_they_are(drive: tuple[Path, Path], tmp_path: Path) -> None:
    path, vrs = drive
    with Session(path) as session:
        channel = session.streams["camera"].channels["video.avi"]
        pictures = [bytes(channel.encoded(at)) for at in range(COUNT)]
    for ending in ("jpg", "blocks"):
        assert run(vrs, "camera", ending, tmp_path / ending) == 0
        files = sorted((tmp_path / ending).iterdir())
        assert [file.read_bytes() for file in files] == pictures
    assert files[0].name.endswith("_000000.jpg")


@pytest.mark.parametrize("every", [1, 5])
def test_video_is_decoded(drive: tuple[Path, Path], tmp_path: Path, every: int) -> None:
    path, vrs = drive
    assert run(vrs, "video", "png", tmp_path / "png", "--every", str(every)) == 0
    expected = decoded(path / "video/video.h264")[::every]
    files = sorted((tmp_path / "png").iterdir())
    for file, picture in zip(files, expected, strict=True):
        assert np.array_equal(np.asarray(cv2.imread(str(file))), picture[..., ::-1])
    assert run(vrs, "video", "blocks", tmp_path / "blocks") == 0
    units = b"".join(file.read_bytes() for file in sorted((tmp_path / "blocks").iterdir()))
    assert units == (path / "video/video.h264").read_bytes()


class Marks(DataLayout):
    number = Value(uint32, "number")
    marks = Vector(uint32, "marks")


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Raw pictures of a few formats, a custom block, and vectors of any length."""
    shapes: dict[PixelFormat, tuple[Any, tuple[int, ...]]] = {
        PixelFormat.GREY16: ("<u2", (4, 6)),
        PixelFormat.RGB8: ("u1", (4, 6, 3)),
        PixelFormat.DEPTH32F: ("<f4", (4, 6)),
    }
    specs = [
        StreamSpec(
            RecordableType.DEPTH_CAMERA,
            f"test/{pixel.text}",
            {(RecordType.DATA, 1): RecordLayout(picture(pixel))},
        )
        for pixel in shapes
    ]
    layout = RecordLayout(Marks, CustomContent())
    specs.append(
        StreamSpec(RecordableType.SENSOR_DATA, "test/marks", {(RecordType.DATA, 1): layout})
    )
    writer = VrsWriter.create(tmp_path / "raw.vrs", PosixDisk(), specs)
    *pictures, marks = writer.streams.values()
    for stream, (dtype, shape) in zip(pictures, shapes.values(), strict=True):
        stream.write(RecordType.DATA, 1.0, grid(dtype, shape).tobytes())
    for at in range(3):
        marks.write(RecordType.DATA, at, Marks(number=at, marks=[7] * 10 * at), bytes([at]))
    writer.finish()
    for file in writer.files:
        file.close()
    return tmp_path / "raw.vrs"


def picture(pixel: PixelFormat) -> ImageContent:
    return ImageContent(format="raw", width=6, height=4, pixel_format=pixel)


def grid(dtype: Any, shape: tuple[int, ...]) -> Any:
    return (np.arange(np.prod(shape)) * 7 % 251).reshape(shape).astype(dtype)


def test_raw_pictures_keep_their_bits(raw: Path, tmp_path: Path) -> None:
    for stream, dtype, shape in (("grey16", "<u2", (4, 6)), ("rgb8", "u1", (4, 6, 3))):
        place = tmp_path / stream
        assert run(raw, f"test/{stream}", "png", place) == 0
        (file,) = place.iterdir()
        read = cv2.imread(str(file), cv2.IMREAD_UNCHANGED)
        assert read is not None
        assert np.array_equal(read if read.ndim == 2 else read[..., ::-1], grid(dtype, shape))
        assert run(raw, f"test/{stream}", "jpg", tmp_path / f"{stream}_jpg") == 0
        (jpeg,) = (tmp_path / f"{stream}_jpg").iterdir()
        assert jpeg_size(jpeg.read_bytes()) == shape[:2]
    assert run(raw, "test/depth32f", "blocks", tmp_path / "depth") == 0
    (file,) = (tmp_path / "depth").iterdir()
    assert file.read_bytes() == grid("<f4", (4, 6)).tobytes() and file.suffix == ".raw"


def test_what_a_table_cannot_hold_is_noted(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(raw, "test/marks", "csv", tmp_path / "marks.csv") == 0
    said = capsys.readouterr().out
    assert "left out: marks: more than 16 values each" in said
    assert "marks[9]: the first record has none" in said
    assert (tmp_path / "marks.csv").read_text().splitlines()[0] == "timestamp_s,number"
    assert run(raw, "test/marks", "blocks", tmp_path / "blocks") == 0
    assert [f.read_bytes() for f in sorted((tmp_path / "blocks").iterdir())] == [
        b"\0",
        b"\1",
        b"\2",
    ]


@pytest.mark.parametrize(
    ("stream", "ending", "words"),
    [
        ("none", "csv", r"has no stream 'none'; its streams: .*test/rgb8"),
        ("depth", "npz", "cannot be exported as npz; fits: csv, jpg, png, blocks"),
        ("test/depth32f", "png", r"pixels of format depth32f are no picture; 'blocks' has them"),
        ("test/marks", "jpg", "has no image"),
    ],
)
def test_what_cannot_be_exported_is_one_error(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    stream: str, ending: str, words: str,
) -> None:  # fmt: skip
    assert run(raw, stream, ending, tmp_path / "out") in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("recorder export: ")
    assert re.search(words, line), line
    assert not (tmp_path / "out").exists()


def test_a_damaged_record_is_left_out(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "no.vrs").write_bytes(raw.read_bytes()[:60])
    assert run(tmp_path / "no.vrs", "test/marks", "csv", tmp_path / "no.csv") == 1
    with pytest.raises(FormatError, match="nothing to export"):
        export_vrs(raw, wanted_marks(), tmp_path / "late.csv")


def wanted_marks() -> Any:
    return Wanted("test/marks", "csv", begin=Moment.parse("99"))
