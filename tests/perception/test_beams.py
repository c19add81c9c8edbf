"""The points of lidars that record ranges in the packet's unit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from recorder.codecs.beams import BEAMS, PACKETS, Beams
from recorder.codecs.points import Column
from recorder.codecs.streams import points_channel
from recorder.common.errors import FormatError
from recorder.perception.frames import cloud_channel, has_ouster_sweeps, kind_of
from recorder.perception.lidar.beams import BeamPoints
from tests.session import beam_sweeps as beam
from tests.session import clouds

VARIANTS: dict[str, dict[str, Any]] = {
    "from y": {},
    "from x": {"zero": "x"},
    "turning while firing": {"zero": "x", "turns_while_firing": True},
    "off the axis": {"lens_mm": (40.0, 12.0), "rise_mm": [1.5 * k for k in range(16)]},
    "one return": {"returns": ["last"]},
    "three returns": {"returns": ["first", "last", "strongest"], "unit_mm": 5.0},
    "two loops": {
        "firing_ns": {
            "0": [100 * k for k in range(16)],
            "1": [None if k < 4 else 200 * k for k in range(16)],
        }
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_points_are_those_of_the_sentences(variant: str) -> None:
    beams = beam.make_beams(**VARIANTS[variant])
    spec = beam.beam_spec(beams)
    data = beam.make_sweeps(spec, 2)
    source = BeamPoints(spec)
    for index in range(2):
        sample = {name: values[index] for name, values in data.items()}
        start_ns, points = source.points(sample, 10**18)
        expected = beam.find_points(beams, data, index)
        beam.check_points(points, expected)
        assert start_ns + int(points["t"].max()) <= 10**18 == start_ns + source_span(source, sample)
        assert source.start_ns(sample, 10**18) == start_ns


def source_span(source: BeamPoints, sample: dict[str, Any]) -> int:
    """The time from the first to the last measurement."""
    t_col: list[int] = sample["t_col"][sample["t_col"] > 0].tolist()
    firing: list[list[int]] = [[t or 0 for t in row] for row in source.beams.firing_ns.values()]
    states = sample.get("state", np.zeros(beam.WIDTH, int))[sample["t_col"] > 0]
    times = [t + f for t, s in zip(t_col, states.tolist(), strict=True) for f in firing[s]]
    span: int = max(times) - min(times)
    return span


@pytest.mark.parametrize("variant", VARIANTS)
def test_organized_points_have_a_place_each(variant: str) -> None:
    beams = beam.make_beams(**VARIANTS[variant])
    spec = beam.beam_spec(beams)
    sample = {name: values[0] for name, values in beam.make_sweeps(spec, 1).items()}
    _, points = BeamPoints(spec).points(sample, 0)
    _, organized = BeamPoints(spec, organized=True).points(sample, 0)
    assert len(organized) == len(beams.returns) * beam.CHANNELS * beam.WIDTH
    rows = organized.reshape(len(beams.returns), beam.CHANNELS, beam.WIDTH)
    assert (rows["ring"] == np.arange(beam.CHANNELS)[:, None]).all()
    assert (rows["return"] == np.arange(len(beams.returns))[:, None, None]).all()
    there = organized[~np.isnan(organized["x"])]
    assert (there.view("u1") == points.view("u1")).all()


def test_ranges_are_in_metres() -> None:
    spec = beam.beam_spec(beam.make_beams(unit_mm=2.5))
    sample = {name: values[0] for name, values in beam.make_sweeps(spec, 1).items()}
    source = BeamPoints(spec)
    assert source.shape == (beam.CHANNELS, beam.WIDTH)
    assert np.allclose(source.ranges_m(sample, 1), sample["rng2"] * 0.0025)
    assert source.image(sample["rfl"]) is sample["rfl"]


def test_an_empty_sweep_has_no_points() -> None:
    spec = beam.beam_spec()
    sample = {c.name: np.zeros(c.shape, c.np_dtype) for c in spec.channels}
    start_ns, points = BeamPoints(spec).points(sample, 77)
    assert (start_ns, len(points)) == (77, 0)
    _, organized = BeamPoints(spec, organized=True).points(sample, 77)
    assert np.isnan(organized["x"]).all() and not organized["t"].any()


@pytest.mark.parametrize("step_ns", [-5_000_000, 1_700_000_000 * 10**9])
def test_a_clock_that_is_set_within_a_sweep_spreads_its_columns(step_ns: int) -> None:
    spec = beam.beam_spec()
    sample = {name: values[0].copy() for name, values in beam.make_sweeps(spec, 1).items()}
    _, steady = BeamPoints(spec).points(sample, 10**18)
    sample["t_col"][50 : beam.COLUMNS] += np.uint64(step_ns % (1 << 64))
    start_ns, points = BeamPoints(spec).points(sample, 10**18)
    assert (points["t"] == steady["t"]).all()
    assert 10**18 - start_ns < 100_000_000


@pytest.mark.parametrize("variant", sorted(VARIANTS.keys() - {"off the axis"}))
def test_the_model_has_each_point_on_its_element(variant: str) -> None:
    """All beams of a model begin on its axis."""
    spec = beam.beam_spec(beam.make_beams(**VARIANTS[variant]))
    sample = {name: values[0] for name, values in beam.make_sweeps(spec, 1).items()}
    source = BeamPoints(spec)
    points = source.points(sample, 0)[1]
    model = source.model()
    elements, spinning = model.elements(points), model.spinning
    azimuth = spinning.column_azimuths_rad[elements[:, 1]]
    azimuth = azimuth + spinning.row_azimuth_offsets_rad[elements[:, 0]]
    elevation = spinning.row_elevations_rad[elements[:, 0]]
    level = np.cos(elevation)
    rays = np.stack([np.cos(azimuth) * level, np.sin(azimuth) * level, np.sin(elevation)], axis=1)
    xyz = np.stack([points["x"], points["y"], points["z"]], axis=1).astype(float)
    xyz /= np.linalg.norm(xyz, axis=1)[:, None]
    off_deg = np.degrees(2 * np.arcsin(np.linalg.norm(rays - xyz, axis=1) / 2))
    assert off_deg.max() < 0.0201
    fired = points["t"] // beam.COLUMN_NS  # the recorded column
    for number in range(beam.COLUMNS):
        column = elements[fired == number, 1].astype(int)
        around = (column - column[0] + 4500) % 9000 - 4500
        assert np.abs(around).max() <= 1
    assert (np.diff(spinning.row_elevations_rad.astype(np.float32)) < 0).all()


def test_packets_are_no_points() -> None:
    columns = (Column("packet", "u1", (40,)),)
    packets = points_channel(columns, "packets", PACKETS)
    ranges, cloud = beam.beam_spec(), clouds.cloud_spec()
    for spec, name in ((ranges, None), (cloud, "points.bin")):
        kept = replace(spec, channels=(packets, *spec.channels))
        assert cloud_channel(kept) == name and kind_of(kept) == "lidar"
        assert has_ouster_sweeps(kept) is False


def test_a_model_of_channels_with_one_elevation_falls() -> None:
    beams = beam.make_beams(elevation_deg=[0.0] * beam.CHANNELS)
    spinning = BeamPoints(beam.beam_spec(beams)).model().spinning
    assert (np.diff(spinning.row_elevations_rad.astype(np.float32)) < 0).all()
    assert np.abs(np.degrees(spinning.row_elevations_rad)).max() < 1e-5


def change(**values: Any) -> str:
    raw = msgspec.json.decode(beam.make_beams().to_text())
    return msgspec.json.encode(raw | values).decode()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "truncated"),
        ("[]", "Expected `object`"),
        (change(elevation_deg=[1.0] * 15), "not of 15 channels each"),
        (change(rise_mm=[1.0] * 15), "not of 16 channels each"),
        (change(firing_ns={"0": [0] * 3}), "not of 16 channels each"),
        (change(firing_ns={"1": [0] * 16}), "the state 0"),
        (change(firing_ns={"0": [0] * 16, "a": [0] * 16}), "of other numbers"),
        (change(returns=[]), "returns: has 0, not 1 to 3"),
        (change(returns=["a"] * 4), "returns: has 4"),
        (change(unit_mm=0), "unit_mm: is 0.0, not above 0"),
        (change(turn=-1), "turn: is -1"),
        (change(column_ns=0), "column_ns"),
        (change(zero="z"), "zero"),
        (change(elevation_deg=[0.0] * 8, azimuth_deg=[0.0] * 8, firing_ns={"0": [0] * 8}),
         "is of 8 channels, the sweeps have 16"),
        (change(returns=["a", "b", "c"]), r"sweeps with rng3 \[16, 104\], not \[\]"),
    ],
)  # fmt: skip
def test_a_wrong_description_is_named(text: str, fault: str) -> None:
    spec = replace(beam.beam_spec(), files={BEAMS: text})
    with pytest.raises(FormatError, match=f"lidar: beams.json: .*{fault}"):
        BeamPoints(spec)


def test_the_description_is_read_as_written() -> None:
    beams = beam.make_beams(rise_mm=[0.1] * beam.CHANNELS, lens_mm=(1.0, 2.0), serial="XT1")
    assert Beams.of_text(beams.to_text(), "here") == beams
