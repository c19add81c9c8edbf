"""Pictures of sweeps with a column for each azimuth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from recorder.codecs.beams import Mirrors
from recorder.perception.lidar.beam_pictures import BeamPictures
from recorder.perception.lidar.beams import RANGES, BeamPoints
from tests.drivers.hesai.test_clouds import decode, read_cloud
from tests.session import beam_sweeps as beam
from tests.session.beam_sweeps import CHANNELS, COLUMNS, STEP, TURN

Sweep = dict[str, npt.NDArray[Any]]


def make_sweep(beams: Any, seed: int = 0) -> tuple[BeamPictures, Sweep]:
    spec = beam.beam_spec(beams)
    sample = {name: values[0] for name, values in beam.make_sweeps(spec, 1, seed).items()}
    return BeamPictures(spec), sample


def picture(pictures: BeamPictures, sample: Sweep, channel: str = "rng") -> npt.NDArray[Any]:
    return pictures.select(sample[channel], pictures.find_places(sample))


def test_columns_have_one_azimuth_each_and_the_highest_beam_is_on_top() -> None:
    order = [3, 0, 15, 1, 2, *range(4, 15)]
    azimuths = [float(k % 5) * 7.2 for k in range(CHANNELS)]
    beams = beam.make_beams(elevation_deg=[-2.0 * k for k in order], azimuth_deg=azimuths)
    pictures, sample = make_sweep(beams)
    shown = picture(pictures, sample)
    assert shown.shape == pictures.shape == (CHANNELS, COLUMNS)
    assert shown.dtype == np.uint16
    for channel in range(CHANNELS):
        for column in range(COLUMNS):
            azimuth_deg = sample["azimuth"][column] * 360 / TURN + azimuths[channel]
            at = round((azimuth_deg + 180) / 3.6) % COLUMNS
            assert shown[order[channel], at] == sample["rng"][channel, column]


def test_a_pixel_that_the_motor_left_out_has_its_left_neighbour() -> None:
    pictures, sample = make_sweep(beam.make_beams(azimuth_deg=[0.0] * CHANNELS))
    sample["t_col"][COLUMNS - 3 :] = 0
    sample["azimuth"] = np.round(np.arange(beam.WIDTH) * TURN / 97).astype(np.uint32)
    places = pictures.find_places(sample)
    assert (places >= 0).all()
    assert set(places[0].tolist()) == set(range(97))
    off_deg = (places[0] * 360 / 97 - np.arange(COLUMNS) * 3.6) % 360
    assert np.abs((off_deg + 180 + 180) % 360 - 180).max() < 1.5 * 3.6


def test_of_more_columns_than_pixels_the_later_one_is_shown() -> None:
    pictures, sample = make_sweep(beam.make_beams(azimuth_deg=[0.0] * CHANNELS))
    sample["azimuth"][7] = sample["azimuth"][6] + STEP // 4
    shown = picture(pictures, sample)
    assert (shown[:, 56] == sample["rng"][:, 7]).all()


def test_lost_columns_are_empty() -> None:
    pictures, sample = make_sweep(beam.make_beams(azimuth_deg=[0.0] * CHANNELS))
    sample["t_col"][20:40] = 0
    empty = pictures.find_places(sample) < 0
    assert np.flatnonzero(empty[0]).tolist() == list(range(70, 90))
    assert not picture(pictures, sample, "rfl")[empty].any()
    sample["t_col"][:] = 0
    assert (pictures.find_places(sample) < 0).all()


def test_channels_that_do_not_fire_hide_nothing() -> None:
    """A lidar whose lower channels fire in every second column, so that each fills a gap."""
    rows = [None if k < 4 else 0 for k in range(CHANNELS)]
    beams = beam.make_beams(
        azimuth_deg=[0.0] * CHANNELS, firing_ns={"0": [0] * CHANNELS, "1": rows}
    )
    pictures, sample = make_sweep(beams)
    shown = picture(pictures, sample)
    at = (np.arange(0, COLUMNS, 2) + 50) % COLUMNS
    assert (shown[:4, at] == sample["rng"][:4, 0:COLUMNS:2]).all()
    assert (shown[:4, at + 1] == shown[:4, at]).all()
    assert (shown[4:, at + 1] == sample["rng"][4:, 1:COLUMNS:2]).all()


def test_a_lidar_that_turns_while_it_fires() -> None:
    firing = [500_000 + 1_000_000 * (k % 2) for k in range(CHANNELS)]
    beams = beam.make_beams(
        azimuth_deg=[-0.07] * CHANNELS, firing_ns={"0": firing}, turns_while_firing=True
    )
    pictures, sample = make_sweep(beams)
    sample["azimuth"][:COLUMNS] += np.uint32(STEP // 4)
    shown = picture(pictures, sample)
    for column in range(COLUMNS - 2):
        assert shown[0, (column + 51) % COLUMNS] == sample["rng"][0, column]
        assert shown[1, (column + 52) % COLUMNS] == sample["rng"][1, column]


def test_every_nth_pixel() -> None:
    spec = beam.beam_spec()
    sample = {name: values[0] for name, values in beam.make_sweeps(spec, 1).items()}
    few, every = BeamPictures(spec, points=300), BeamPictures(spec)
    steps = few.row_step, few.column_step
    assert steps == (3, 2) and few.shape == (6, COLUMNS // 2)  # 6 deg and 7.2 deg apart
    assert (picture(few, sample) == picture(every, sample)[::3, ::2]).all()


def test_behind_mirrors_the_picture_has_their_field() -> None:
    field, count = TURN // 3, 36
    mirrors = Mirrors(
        begins=[0, field, 2 * field], ends=[field // 2, field + field // 2, 2 * field + field // 2],
        step=TURN // count, azimuth_adjust=bytes(CHANNELS * count),
        elevation_adjust=bytes(CHANNELS * count),
    )  # fmt: skip
    beams = beam.make_beams(mirrors=mirrors, azimuth_deg=[30.0] * CHANNELS)
    pictures, sample = make_sweep(beams)
    shown = picture(pictures, sample)
    assert shown.shape == (CHANNELS, 51)  # from 30 to 150 deg, 2.4 deg each
    narrow = msgspec.structs.replace(mirrors, view_deg=(40.0, 100.0))
    pictures, _ = make_sweep(beam.make_beams(mirrors=narrow, azimuth_deg=[0.0] * CHANNELS))
    assert pictures.shape == (CHANNELS, 26)
    wide = [0.0, 12.0] * (CHANNELS // 2)  # of the channels
    pictures, _ = make_sweep(beam.make_beams(mirrors=narrow, azimuth_deg=wide))
    assert pictures.shape == (CHANNELS, 36)
    last = [k for k in range(COLUMNS) if 2 * field <= sample["azimuth"][k] <= 2.5 * field]
    for column in last:
        at = round((sample["azimuth"][column] - 2 * field) * 720 / TURN / 2.4)
        assert (shown[:, at] == sample["rng"][:, column]).all()


@pytest.mark.parametrize("folder", ["hesai_xt32", "hesai_qt64"])
def test_a_real_lidar_has_its_cloud_in_the_picture(shared_data: Path, folder: str) -> None:
    """The points of tier4/nebula lie at their azimuths, with their ranges."""
    account, spec = decode(shared_data, folder)
    source, pictures = BeamPoints(spec), BeamPictures(spec)
    cloud = read_cloud(shared_data / "lidar" / folder)
    range_m, azimuth = np.linalg.norm(cloud, axis=1), np.arctan2(cloud[:, 0], cloud[:, 1])
    elevation = np.degrees(np.arcsin(cloud[:, 2] / range_m))
    falling = np.sort(source.beams.elevation_deg)[::-1]
    row = np.abs(elevation[:, None] - falling).argmin(axis=1)
    best = filled = 0.0
    for sample in account.samples:
        sweep = {name: np.asarray(values)[0] for name, values in sample.data.items()}
        places = pictures.find_places(sweep)
        column = np.rint((azimuth + np.pi) / (2 * np.pi) * pictures.shape[1]).astype(int)
        at = row, column % pictures.shape[1]
        near = np.zeros(len(cloud), bool)
        for number in range(source.returns):
            shown = pictures.select(sweep[RANGES[number]], places)
            near |= np.abs(shown[at] * pictures.unit_m - range_m) < 2e-3
        best, filled = max(best, float(near.mean())), max(filled, float((places >= 0).mean()))
    assert best > 0.9 and filled > 0.99, (best, filled)
