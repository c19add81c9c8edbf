"""Videos that are damaged, cut, or none at all."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from drivers.kit.driver import Lost, Sample
from recorder.common.errors import SourceError
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.camera.rig import driver, frame, jpeg, play, stamps, take, write_avi, write_video
from tests.support.devices import opened, play_out

# Files that are not


def test_missing_files(tmp_path: Path) -> None:
    for name in ("none.mp4", "none_%03d.jpg", "no_folder/img_%03d.jpg"):
        with pytest.raises(SourceError) as caught:
            driver(tmp_path / name, name="rear").open()
        assert "rear" in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)
    with pytest.raises(SourceError, match="a folder"):
        driver(tmp_path).open()


@pytest.mark.parametrize("name", ["x.mp4", "x.avi", "x.jpg", "x.mkv", "x"])
@pytest.mark.parametrize("data", [b"", b"no video at all\n" * 50, bytes(5000)])
def test_files_that_are_no_video(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SourceError, match="not a video") as caught:
        driver(path).open()
    assert str(path) in str(caught.value)


def test_a_video_without_frames(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a video with a frame"):
        driver(write_avi(tmp_path / "v.avi", [])).open()


@pytest.mark.parametrize(
    ("file", "codec"), [("v.avi", "XVID"), ("v.avi", "MJPG"), ("v.mkv", "mp4v")]
)
def test_a_cut_file_ends_with_its_last_frame_and_an_error(
    tmp_path: Path, file: str, codec: str
) -> None:
    path = write_video(tmp_path / file, codec, count=50)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    items, end = play_out(driver(path, name="rear"))
    number = " of 50" if file == "v.avi" else ""  # Matroska declares no number
    for word in ("rear", str(path), f"after {len(items)}{number} frames; the file is truncated"):
        assert word in str(end)
    pictures = [item for item in items if isinstance(item, Sample)]
    assert 10 < len(pictures) < 45
    assert len(items) - len(pictures) <= 1  # the one that the cut went through
    # An MPEG-4 decoder shows a picture that was cut as far as it goes: not the last one's number.
    numbers = [read_frame_number(frame(item)) for item in pictures]
    assert numbers[:-1] == list(range(len(pictures) - 1))


def test_a_cut_at_every_frame_is_noticed(tmp_path: Path) -> None:
    frames = [jpeg(k) for k in range(6)]
    for kept in range(1, 6):
        with opened(driver(write_avi(tmp_path / "v.avi", frames[:kept], declared=6))) as camera:
            for index in range(kept):
                assert read_frame_number(frame(take(camera))) == index
            with pytest.raises(SourceError, match=f"after {kept} of 6 frames"):
                take(camera)


def test_an_unfinished_avi_ends_where_it_ends(tmp_path: Path) -> None:
    # A recording that was cut off declares 0 frames: nothing says that any is missing.
    _, items = play(write_avi(tmp_path / "v.avi", [jpeg(k) for k in range(4)], declared=0))
    assert len(items) == 4


def test_more_frames_than_declared_are_all_given(tmp_path: Path) -> None:
    _, items = play(write_avi(tmp_path / "v.avi", [jpeg(k) for k in range(9)], declared=5))
    assert len(items) == 9


@pytest.mark.parametrize("width", [None, 160])
def test_a_damaged_jpeg_is_one_counted_loss(tmp_path: Path, width: int | None) -> None:
    frames = [jpeg(k) for k in range(8)]
    frames[3] = frames[3][: len(frames[3]) // 2]
    frames[5] = bytes(500)
    _, items = play(write_avi(tmp_path / "v.avi", frames), width=width)
    assert [type(item) for item in items] == [
        Lost if k in (3, 5) else Sample for k in range(8)
    ]  # fmt: skip
    assert stamps(items) == [k * 40_000_000 for k in range(8)]
    for item in items:
        if isinstance(item, Lost):
            assert (item.stream, item.cause, item.count) == ("camera", "corrupt", 1)
    assert isinstance(items[3], Lost)
    assert "cut off" in items[3].detail["reason"]


def test_a_picture_that_does_not_decode_is_one_counted_loss(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.avi", "XVID", count=30)
    data = bytearray(path.read_bytes())
    at = data.index(b"movi")
    for _ in range(13):
        at = data.index(b"00dc", at + 1)
    size = int.from_bytes(data[at + 4 : at + 8], "little")
    data[at + 8 : at + 8 + size] = bytes(size)
    path.write_bytes(data)
    _, items = play(path)
    lost = [item for item in items if isinstance(item, Lost)]
    assert [(item.cause, item.count) for item in lost] == [("corrupt", 1)]
    assert abs(lost[0].t_ns - 12 / 30 * 1e9) < 0.07e9
    pictures = [item for item in items if isinstance(item, Sample)]
    numbers = [read_frame_number(frame(item)) for item in pictures]
    assert (12 in numbers, len(numbers)) == (False, 29)
    assert stamps(pictures) == [pytest.approx(k * 1e9 / 30, abs=2) for k in range(30) if k != 12]


def test_frames_that_an_edit_list_hides_are_counted(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mp4", "mp4v", count=60)
    data = bytearray(path.read_bytes())
    entry = data.index(b"elst") + 12
    duration, start = struct.unpack_from(">Ii", data, entry)
    per_frame = int.from_bytes(data[(at := data.index(b"mdhd")) + 16 : at + 20], "big") // 30
    struct.pack_into(">Ii", data, entry, duration * 50 // 60, start + 10 * per_frame)
    path.write_bytes(data)
    _, items = play(path)
    numbers = [read_frame_number(frame(i)) for i in items if isinstance(i, Sample)]
    assert numbers == list(range(10, 60))
    assert isinstance(items[-1], Lost)
    assert (items[-1].cause, items[-1].count) == ("undecoded", 10)


def test_frames_left_out_by_the_camera_are_no_cut(tmp_path: Path) -> None:
    frames = [jpeg(k) for k in range(8)]
    frames[4] = b""  # AVI's way to say: the frame before once more
    _, items = play(write_avi(tmp_path / "v.avi", frames))
    assert stamps(items) == [k * 40_000_000 for k in range(8) if k != 4]


def test_a_file_that_vanishes_between_loops(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.avi", "MJPG", 3)
    camera = driver(path)
    camera.open()
    camera.close()
    path.unlink()
    with pytest.raises(SourceError, match="no such file"):
        camera.open()


def test_read_needs_open() -> None:
    with pytest.raises(SourceError, match="before open"):
        driver("/nowhere.mp4").read()


def test_nothing_is_said_on_stderr(tmp_path: Path) -> None:
    # In a process of its own: FFmpeg's log level is fixed by whoever opens a file first.
    cut = write_video(tmp_path / "cut.avi", "XVID")
    cut.write_bytes(cut.read_bytes()[:-30_000])
    (tmp_path / "none.mp4").write_bytes(b"nothing")
    code = """
import sys
from drivers.kit.driver import EndOfSource, SensorConfig
from drivers.camera.driver import CameraDriver
from recorder.common.errors import SourceError
from recorder.config.options import check_options
for path in sys.argv[1:]:
    camera = CameraDriver(SensorConfig("c", "file", path, check_options(CameraDriver.options, {})))
    try:
        camera.open()
        while True:
            camera.read()
    except SourceError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(cut), str(tmp_path / "none.mp4")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[3],
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
