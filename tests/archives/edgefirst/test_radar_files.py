"""What a radar gives to samples of EdgeFirst: cubes as int16, and the files made of frames."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.archives.context import PackingContext
from recorder.archives.edgefirst.packer import PACKER
from recorder.archives.edgefirst.sensors import RadarFiles, quantize, radar_points
from recorder.archives.shared_options import radar_frames
from recorder.common.errors import ArchiveError, FormatError
from recorder.formats.png import cube_of_picture, cube_picture
from recorder.perception.calibration import Calibration
from recorder.perception.sensor_files import radar_geometry
from recorder.session.reader import Session
from recorder.session.stream import Stream
from tests.archives.edgefirst.rig import decode, points
from tests.session.build import RADAR_JSON, Builder, radar_spec

FRAMES, TX, RX = 6, 2, 4
ANTENNAS = {
    "tx_m": [[0, 0.008 * number, 0] for number in range(TX)],
    "rx_m": [[0, 0.002 * number, 0] for number in range(RX)],
}


def plainly(spectra: npt.NDArray[np.complex64], gain: float) -> tuple[npt.NDArray[np.int16], int]:
    """A cube, and how many values were cut, step by step."""
    turned = np.fft.fftshift(spectra, axes=2).transpose(0, 1, 3, 2)
    full = np.rint(np.stack([turned.real, turned.imag], axis=-1) * np.float32(gain))
    return np.clip(full, -32767, 32767).astype(np.int16), int((np.abs(full) > 32767).sum())


@given(
    shape=st.tuples(*(st.integers(1, most) for most in (3, 4, 9, 12))),
    gain=st.sampled_from([16.0, 0.7, 1e-3, 1e6]),
    loudest=st.sampled_from([1.0, 100.0, 2048.0, 46_340.0]),
    seed=st.integers(0, 999),
)
def test_cubes_are_rounded_turned_and_cut(
    shape: tuple[int, int, int, int], gain: float, loudest: float, seed: int
) -> None:
    """Of any size, and of values far beyond what an int32 holds, too."""
    parts = np.random.default_rng(seed).uniform(-loudest, loudest, (*shape, 2))
    spectra = parts.astype(np.float32).view(np.complex64)[..., 0]
    cube, cut = quantize(spectra, gain)
    expected, known = plainly(spectra, gain)
    assert cut == known
    assert cube.dtype == np.int16
    assert np.array_equal(cube, expected)
    assert np.array_equal(cube_of_picture(cube_picture(cube), shape[0], shape[1]), expected)


def test_halves_are_rounded_to_even_and_the_ends_are_no_cut() -> None:
    values = np.array([0.5, 1.5, -2.5, 32766.5, 32767.4, -32767.4, 32767.5, -32768.0], np.float32)
    cube, cut = quantize(values.view(np.complex64).reshape(1, 1, 1, 4), 1.0)
    assert cube.reshape(-1).tolist() == [0, 2, -2, 32766, 32767, -32767, 32767, -32767]
    assert cut == 2


@pytest.mark.parametrize("loud", [32_768.0, -32_768.0, 3e9, -3e9])
def test_one_value_that_does_not_fit_is_counted(loud: float) -> None:
    values = np.array([1, loud, 3, 32767], np.float32)
    cube, cut = quantize(values.view(np.complex64).reshape(1, 1, 1, 2), 1.0)
    assert cube.reshape(-1).tolist() == [1, np.sign(loud) * 32767, 3, 32767]
    assert cut == 1


def test_spectra_of_any_layout() -> None:
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(8, 3, 4, 10, 2)).astype(np.float32)
    spectra = parts.view(np.complex64)[..., 0].transpose(1, 2, 0, 3)
    assert np.array_equal(quantize(spectra, 99.0)[0], plainly(spectra, 99.0)[0])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = Builder(tmp_path_factory.mktemp("radar") / "s")
    text = json.dumps(json.loads(RADAR_JSON) | {"antennas": ANTENNAS})
    radar = replace(radar_spec(), files={"radar.json": text})
    builder.add(radar, count=FRAMES, seed=32)  # whose first frame is not valid
    return builder.close()


@pytest.fixture
def context(session: Path, tmp_path: Path) -> Iterator[PackingContext]:
    with Session(session) as read:
        context = PackingContext(
            read, tmp_path, PACKER.check({"radar_threshold_db": 3}), Calibration()
        )
        yield context
        context.close()


@pytest.fixture
def files(context: PackingContext) -> RadarFiles:
    return RadarFiles(context, context.session.streams["radar"])


def test_frames_made_together_are_those_made_one_by_one(files: RadarFiles) -> None:
    order = [4, 0, 1, 5, 2, 3]
    made = files.submit(order)()
    alone = [files.submit([index])()[0] for index in order]
    for some, one in zip(made, alone, strict=True):
        assert some.files.keys() == {"radar.pcd", "radar.png"}
        for ending, payload in some.files.items():
            assert bytes(payload.data) == bytes(one.files[ending].data)
    assert len({bytes(one.files["radar.pcd"].data) for one in made}) == FRAMES
    assert [one.irregularities for one in made] == [one.irregularities for one in alone]


def test_files_are_those_of_their_frame(context: PackingContext, files: RadarFiles) -> None:
    stream = files.stream
    geometry = radar_geometry(stream, context.calibration)
    frames = radar_frames(stream, geometry, context.options, None)
    processor = frames.processor
    cut = 0
    for index, made in enumerate(files.submit(range(FRAMES))()):
        files.count(made)
        iq = stream.sample(index, ["iq"])["iq"]
        expected, more = plainly(processor.spectra(iq), 16.0)
        cut += more
        picture = decode(bytes(made.files["radar.png"].data))
        assert np.array_equal(cube_of_picture(picture, TX, RX), expected)
        found = frames.resolved(index)
        assert np.array_equal(found.power_db, processor.detect(iq).power_db)
        period = 2 * geometry.max_velocity
        assert np.array_equal(
            points(bytes(made.files["radar.pcd"].data)), radar_points(found, 67.2, period)
        )
    assert files.cut == cut > 0  # this noise is louder than any radar's
    valid = [bool(stream.sample(index, ["valid"])["valid"]) for index in range(FRAMES)]
    assert files.incomplete == valid.count(False) == 1


def test_of_frames_made_together_the_broken_one_is_named(
    files: RadarFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Stream.sample

    def broken(stream: Stream, index: int, channels: Sequence[str] | None = None) -> Any:
        if index == 3:
            raise FormatError("a frame that xz cannot unpack")
        return read(stream, index, channels)

    monkeypatch.setattr(Stream, "sample", broken)
    assert len(files.submit([0, 1, 2, 4])()) == 4
    with pytest.raises(ArchiveError, match=r"^radar, sample 3: a frame that xz cannot unpack"):
        files.submit([1, 2, 3, 4])()
