"""How many pictures a video has: what its own index declares, against files that PyAV muxes."""

from __future__ import annotations

import functools
import io
import tempfile
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from drivers.camera.files.video_index import VideoIndex, read_video_index
from drivers.kit.driver import Lost, Sample
from tests.drivers.camera.rig import driver, play, stamps
from tests.support.devices import play_out

COUNT, RATE = 30, 25
FRAGMENTED = {"movflags": "frag_keyframe+empty_moov"}
SOUND_RATE, SOUND_S = 48_000, 1.8


def write(path: Path, options: dict[str, str], ticks: Iterable[int] = range(COUNT)) -> Path:
    """A video of 30 pictures, 1.2 s, with silence as sound, which is longer.

    Args:
        path: its suffix names the container.
        options: of FFmpeg's muxer.
        ticks: times of the pictures, in 1/25 s.
    """
    path.write_bytes(_encode(path.suffix, tuple(options.items()), tuple(ticks)))
    return path


@functools.cache
def _encode(suffix: str, options: tuple[tuple[str, str], ...], ticks: tuple[int, ...]) -> bytes:
    rng = np.random.default_rng(1)  # noise, so that the pictures are most of the file
    with (
        tempfile.NamedTemporaryFile(suffix=suffix) as file,
        av.open(file.name, "w", options=dict(options)) as container,
    ):
        pictures: Any = container.add_stream("libx264", rate=RATE)
        pictures.width, pictures.height, pictures.pix_fmt = 64, 48, "yuv420p"
        pictures.options = {"sc_threshold": "0"}
        pictures.codec_context.gop_size, pictures.codec_context.max_b_frames = 5, 0
        sound: Any = container.add_stream("aac", rate=SOUND_RATE)
        done = 0
        for tick in [*ticks, None]:
            until = SOUND_S if tick is None else (tick + 1) / RATE
            if tick is None:
                container.mux(pictures.encode())
            else:
                values = rng.integers(0, 256, (48, 64, 3), np.uint8)
                image = av.VideoFrame.from_ndarray(values, format="rgb24")
                image.pts, image.time_base = tick, Fraction(1, RATE)
                container.mux(pictures.encode(image))
            while done < until * SOUND_RATE:
                silence = np.zeros((1, 1024), np.float32)
                part = av.AudioFrame.from_ndarray(silence, format="fltp", layout="mono")
                part.sample_rate, part.pts, done = SOUND_RATE, done, done + 1024
                container.mux(sound.encode(part))
        container.mux(sound.encode())
        container.close()
        return Path(file.name).read_bytes()


def index_of(data: bytes) -> VideoIndex:
    return read_video_index(io.BytesIO(data))


def played(path: Path, **options: Any) -> tuple[int, str]:
    """How many pictures a file gives, and how it ends."""
    items, error = play_out(driver(path, **options))
    assert not [item for item in items if isinstance(item, Lost)]
    return len(items), str(error or "EndOfSource")


WHOLE = [
    ("v.mp4", FRAGMENTED, COUNT),
    ("v.mp4", {"movflags": "frag_keyframe+default_base_moof+faststart"}, COUNT),
    ("v.mp4", {"movflags": "frag_every_frame+empty_moov"}, COUNT),
    ("v.mp4", {}, COUNT),
    ("v.mov", {"movflags": "faststart"}, COUNT),
    ("v.mkv", {}, None),
    ("v.ts", {}, None),
]


@pytest.mark.parametrize(("name", "options", "declared"), WHOLE)
@pytest.mark.parametrize("codec", ["jpeg", "copy"])
def test_sound_that_is_longer_than_the_pictures_is_no_cut(
    tmp_path: Path, name: str, options: dict[str, str], declared: int | None, codec: str
) -> None:
    path = write(tmp_path / name, options)
    assert index_of(path.read_bytes()) == (declared, False, None)
    assert played(path, codec=codec) == (COUNT, "EndOfSource")


def test_the_times_of_a_variable_rate_are_kept(tmp_path: Path) -> None:
    ticks = [0, 1, 2, 3, 4, 30, 31, 32, 60, 61]
    for options in (FRAGMENTED, {}):
        path = write(tmp_path / "v.mp4", options, ticks=ticks)
        _, items = play(path)
        assert all(isinstance(item, Sample) for item in items)
        with av.open(str(path)) as container:  # fragments may begin with the sound's padding
            packets = [p for p in container.demux(video=0) if p.pts is not None]
            times = [round(p.pts * p.time_base * 10**9) for p in packets]
        assert stamps(items) == times and len(times) == len(ticks)


@pytest.mark.parametrize("codec", ["jpeg", "copy"])
def test_a_fragmented_file_that_is_cut_in_a_fragment_is_truncated(
    tmp_path: Path, codec: str
) -> None:
    path = write(tmp_path / "v.mp4", FRAGMENTED)
    data = path.read_bytes()
    bounds = [at for at in range(len(data)) if data[at + 4 : at + 8] == b"moof"]
    assert len(bounds) == COUNT // 5
    for at, whole in ((bounds[3] - 200, 14), (bounds[3] + 40, 15), (bounds[3] + 300, 15)):
        path.write_bytes(data[:at])
        count, end = played(path, codec=codec)
        assert count == whole
        assert "truncated or damaged" in end or (codec == "copy" and "cannot be read after" in end)
    path.write_bytes(data[: bounds[3]])  # as long as the recording went
    assert index_of(path.read_bytes()) == (15, False, None)
    assert played(path, codec=codec) == (15, "EndOfSource")


@pytest.mark.parametrize("name", ["v.mp4", "v.mkv"])
@pytest.mark.parametrize("codec", ["jpeg", "copy"])
def test_a_file_that_is_cut_is_truncated(tmp_path: Path, name: str, codec: str) -> None:
    path = write(tmp_path / name, {"movflags": "faststart"} if name == "v.mp4" else {})
    path.write_bytes(path.read_bytes()[:-3000])
    assert index_of(path.read_bytes()).is_cut
    count, end = played(path, codec=codec)
    assert 5 < count < COUNT
    number = f"{count} of {COUNT}" if name == "v.mp4" else str(count)
    cut = f"ends after {number} frames; the file is truncated or damaged"
    assert cut in end or (codec == "copy" and "cannot be read after" in end)


def test_a_matroska_file_of_unknown_size_ends_where_it_ends(tmp_path: Path) -> None:
    """As a program writes it to a pipe, or as it is before it is closed."""
    path = write(tmp_path / "v.mkv", {"live": "1"})
    assert index_of(path.read_bytes()[:-500]) == (None, False, None)
    assert played(path) == (COUNT, "EndOfSource")
