"""Sessions of a lidar that records ranges in the packet's unit, with known points."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recorder.codecs.beams import BEAMS, Beams
from recorder.codecs.streams import ChannelSpec, StreamSpec
from tests.session.build import Builder, Recorded, camera_spec

CHANNELS, COLUMNS, WIDTH = 16, 100, 104
TURN = 36_000
STEP = TURN // COLUMNS
COLUMN_NS = 1_000_000
UNIT_MM = 4.0
DEVICE_NS = 1_700_000_000_000_000_000


class Point(NamedTuple):
    """A point, computed by itself."""

    xyz: tuple[float, float, float]
    intensity: int
    return_: int
    ring: int
    t_ns: int
    """After the earliest measurement."""


def make_beams(**changes: Any) -> Beams:
    """A lidar whose azimuth 0 is y, with two returns, whose second half fires later."""
    values: dict[str, Any] = {
        "vendor": "Hesai",
        "model": "PandarXT16",
        "unit_mm": UNIT_MM,
        "turn": TURN,
        "zero": "y",
        "returns": ["last", "strongest"],
        "elevation_deg": [15.0 - 2 * k for k in range(CHANNELS)],
        "azimuth_deg": [0.1 * (k % 3) for k in range(CHANNELS)],
        "firing_ns": {"0": [1000 * k for k in range(CHANNELS)]},
        "column_ns": float(COLUMN_NS),
        "calibration": "default",
    }
    return Beams(**values | changes)


def beam_spec(beams: Beams | None = None, name: str = "lidar") -> StreamSpec:
    beams = beams or make_beams()
    channels = []
    for mark in ("", "2", "3")[: len(beams.returns)]:
        shape = CHANNELS, WIDTH
        channels.append(ChannelSpec(f"rng{mark}", "zstdf", "u2", shape, "range", "4 mm"))
        channels.append(ChannelSpec(f"rfl{mark}", "zstdf", "u1", shape, "reflectivity"))
        channels.append(ChannelSpec(f"conf{mark}", "zstdf", "u1", shape, "confidence"))
    if len(beams.firing_ns) > 1:
        channels.append(ChannelSpec("state", "raw", "u1", (WIDTH,)))
    channels.append(ChannelSpec("azimuth", "raw", "u4", (WIDTH,)))
    channels.append(ChannelSpec("t_col", "raw", "u8", (WIDTH,), "", "ns", device_time=True))
    files = {BEAMS: beams.to_text()}
    return StreamSpec(name, tuple(channels), rate_hz=10.0, device_clock=True, files=files)


def make_sweeps(spec: StreamSpec, count: int, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Values of sweeps: a tenth of the pixels has no return, a third of the second repeat."""
    rng = np.random.default_rng(seed)
    data: dict[str, npt.NDArray[Any]] = {}
    for channel in spec.channels:
        data[channel.name] = np.zeros((count, *channel.shape), channel.np_dtype)
    shape = count, CHANNELS, COLUMNS
    first = rng.integers(1500, 20_000, shape) * (rng.random(shape) > 0.1)
    same = rng.random(shape) < 0.3
    for number, mark in enumerate(m for m in ("", "2", "3") if f"rng{m}" in data):
        other = rng.integers(1500, 20_000, shape) * (rng.random(shape) > 0.5)
        data[f"rng{mark}"][..., :COLUMNS] = first if not number else np.where(same, first, other)
        data[f"rfl{mark}"][..., :COLUMNS] = np.arange(COLUMNS) + 3
        data[f"conf{mark}"][..., :COLUMNS] = rng.integers(0, 4, shape)
    place = np.arange(COLUMNS)
    data["azimuth"][:, :COLUMNS] = (7 + STEP * place) % TURN
    begins = DEVICE_NS + 100_000_000 * np.arange(count)[:, None]
    data["t_col"][:, :COLUMNS] = begins + COLUMN_NS * place
    if "state" in data:
        data["state"][:, :COLUMNS] = place % 2
    return data


def find_points(beams: Beams, data: dict[str, npt.NDArray[Any]], index: int) -> list[Point]:
    """The points of a sweep, one by one, by the sentences of ``Beams``."""
    found = []
    marks = ("", "2", "3")
    t_col, azimuths = data["t_col"][index].tolist(), data["azimuth"][index].tolist()
    there = [column for column in range(WIDTH) if t_col[column]]

    def firing_ns(ring: int, column: int) -> int:
        state = str(data["state"][index, column]) if "state" in data else "0"
        return beams.firing_ns[state][ring] or 0

    earliest = min(t_col[c] + firing_ns(ring, c) for c in there for ring in range(CHANNELS))
    for number in range(len(beams.returns)):
        for ring in range(CHANNELS):
            for column in there:
                values = [
                    tuple(int(data[f"{name}{m}"][index, ring, column]) for name in ("rng", "rfl"))
                    for m in marks[: number + 1]
                ]
                value, brightness = values[-1]
                if not value or values[-1] in values[:-1]:
                    continue
                after_ns = firing_ns(ring, column)
                turned = azimuths[column] * 360 / beams.turn
                if beams.turns_while_firing:
                    turned += STEP * 360 / beams.turn * after_ns / COLUMN_NS
                elevation = math.radians(beams.elevation_deg[ring])
                azimuth = math.radians(turned + beams.azimuth_deg[ring])
                distance = value * beams.unit_mm / 1000
                out, up = (mm / 1000 for mm in beams.lens_mm)
                north = distance * math.cos(elevation) * math.cos(azimuth)
                north += out * math.cos(math.radians(turned))
                east = distance * math.cos(elevation) * math.sin(azimuth)
                east += out * math.sin(math.radians(turned))
                height = distance * math.sin(elevation) + up
                height += beams.rise_mm[ring] / 1000 if beams.rise_mm else 0
                xyz = (north, -east, height) if beams.zero == "x" else (east, north, height)
                t_ns = t_col[column] + after_ns - earliest
                found.append(Point(xyz, brightness, number, ring, t_ns))
    return found


class Drive(NamedTuple):
    """A session of a camera and a lidar, and the points of its sweeps."""

    builder: Builder
    lidar: Recorded
    sweeps: list[list[Point]]

    @property
    def path(self) -> Path:
        return self.builder.path

    def start_ns(self, index: int) -> int:
        """Time from which the points' times count: the last measurement is at the stamp."""
        last = (COLUMNS - 1) * COLUMN_NS + 1000 * (CHANNELS - 1)
        return int(self.lidar.t_ns[index]) - last


def drive(path: Path, beams: Beams | None = None, count: int = 3, calibration: str = "") -> Drive:
    beams = beams or make_beams()
    builder, spec = Builder(path), beam_spec(beams)
    builder.add(camera_spec(), count / 10)
    data = make_sweeps(spec, count)
    lidar = builder.add(spec, count=count, data=data)
    if calibration:
        (path / "calibration.yaml").write_text(calibration)
    builder.close()
    return Drive(builder, lidar, [find_points(beams, data, k) for k in range(count)])


def check_points(found: Any, points: list[Point], within_m: float = 1e-4) -> None:
    """Check structured points against those computed one by one, of the same order."""
    assert len(found) == len(points)
    xyz = np.stack([found["x"], found["y"], found["z"]], axis=1)
    assert np.abs(xyz - np.array([p.xyz for p in points])).max() < within_m
    assert found["intensity"].tolist() == [p.intensity for p in points]
    assert found["return"].tolist() == [p.return_ for p in points]
    assert found["ring"].tolist() == [p.ring for p in points]
    assert found["t"].tolist() == [p.t_ns for p in points]
