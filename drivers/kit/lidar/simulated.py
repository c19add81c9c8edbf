"""The simulated world as a spinning lidar of any model sees it; packets are made and decoded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, SensorConfig
from drivers.kit.lidar.columns import Columns
from drivers.kit.lidar.decoder import PacketDecoder, PacketEncoder, Packets
from drivers.kit.lidar.family import Family
from drivers.world import World
from drivers.world.faults import LIDAR_FAULTS, read_faults
from drivers.world.mounts import LIDAR, make_mount
from drivers.world.noise import noise_seed, normal
from drivers.world.raycast import Image
from drivers.world.view import HORIZON_M, View
from recorder.codecs.beams import BEAMS, Beams
from recorder.codecs.mirrors import TurningMirrors
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError

START_NS: Final = 1_700_000_000_000_000_000
"""Source stamp and device time of a simulated lidar at world time 0."""
_REACH_M: Final = 60.0  # of a diffuse surface of 10 %
_NOISE_M: Final = 0.02
_GOLDEN: Final = (5**0.5 - 1) / 2

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Rays:
    """Rays of a lidar in its own frame; see `drivers.world.view.SensorRays`."""

    direction: Image
    origin: Image
    azimuth_rad: Floats
    spread_rad: float
    slope: Floats
    step_ns: float


def make_rays(beams: Beams, columns: Columns) -> Rays:
    """Return the rays of all channels [channels, columns], as `beams` describes them."""
    shape = len(beams.elevation_deg), len(columns.azimuth)
    states = np.zeros(shape[1], int) if columns.state is None else columns.state.astype(int)
    firing_ns = np.array(
        [[float(t or 0) for t in beams.firing_ns[str(state)]] for state in states.tolist()]
    ).T
    column = np.broadcast_to(columns.azimuth.astype(np.float64), shape)
    if beams.turns_while_firing:
        azimuth: npt.NDArray[Any] = columns.azimuth.astype(np.int64)
        step = np.median(np.diff(azimuth) % beams.turn)
        column = column + firing_ns / beams.column_ns * step
    turned = column * (2 * np.pi / beams.turn)
    offset = np.radians(beams.azimuth_deg)[:, None]
    elevation = np.radians(beams.elevation_deg)[:, None]
    if beams.mirrors is not None:
        mirrors = TurningMirrors(beams)
        azimuth_rad = mirrors.find_azimuths(column[0])
        elevation = mirrors.find_elevations(column[0])
        turned = np.broadcast_to(azimuth_rad.mean(axis=0), shape)
        offset = azimuth_rad - turned
    cosine, sine = np.cos(turned + offset), np.sin(turned + offset)
    lens = np.cos(turned), np.sin(turned)
    if beams.zero == "x":
        level, axis, middle = (cosine, -sine), (lens[0], -lens[1]), -turned[0]
    else:
        level, axis, middle = (sine, cosine), (lens[1], lens[0]), np.pi / 2 - turned[0]
    up = np.broadcast_to(np.sin(elevation), shape)
    rise_m = (np.array(beams.rise_mm or [0.0] * shape[0])[:, None] + beams.lens_mm[1]) / 1000
    lens_m = beams.lens_mm[0] / 1000
    origin = np.stack([axis[0] * lens_m, axis[1] * lens_m, np.broadcast_to(rise_m, shape)])
    direction = np.stack([np.cos(elevation) * level[0], np.cos(elevation) * level[1], up])
    return Rays(
        direction.astype(np.float32),
        origin.astype(np.float32),
        np.arctan2(np.sin(middle), np.cos(middle)),
        float(np.abs(offset).max() + np.ptp(turned[:, 0])) + 1e-6,
        np.tan(elevation[:, 0]),
        beams.column_ns,
    )


def fill_view(
    view_deg: tuple[float, float, float, float], points: int, packets: int, interval_ns: int
) -> Rays:
    """Return rays [points of a packet, packets] that fill a solid-state lidar's view evenly.

    Args:
        view_deg: left and right azimuth, low and high elevation.
        points: points of a packet.
        packets: packets of a sweep.
        interval_ns: of packets.
    """
    left, right, low, high = np.radians(view_deg)
    packet, point = np.arange(packets), np.arange(points)[:, None]
    azimuth = left + (right - left) * (packet * _GOLDEN % 1)
    elevation = low + (high - low) / points * (point + packet * _GOLDEN * 7 % 1)
    level = np.cos(elevation)
    direction = [level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)]
    return Rays(
        np.stack(direction).astype(np.float32),
        np.zeros((3, 1, packets), np.float32),
        azimuth,
        1e-6,
        np.tan(elevation.mean(axis=1)),
        float(interval_ns),
    )


def _find_fired(
    beams: Beams, azimuth: npt.NDArray[np.int64], columns: int
) -> npt.NDArray[np.int64]:
    """Return the columns of a turn in which a lidar with mirrors fires, whole packets.

    Args:
        beams: with `mirrors`.
        azimuth: of all columns of a turn.
        columns: of a packet.
    """
    assert beams.mirrors is not None
    seen = np.degrees(TurningMirrors(beams).find_azimuths(azimuth.astype(np.float64)))
    first, last = beams.mirrors.view_deg or (-np.inf, np.inf)
    inside = (seen >= first) & (seen <= last)
    within = np.asarray(inside.any(axis=0))
    packets = within[: len(within) // columns * columns].reshape(-1, columns).all(axis=1)
    return np.flatnonzero(np.repeat(packets, columns))


class SceneView:
    """Measurements of rays in the scene that a sensor's options describe.

    Args:
        sensor: with the options ``scene``, ``seed``, ``noise`` and ``mount``.
        rays: of the sensor.

    Raises:
        ConfigError: an invalid fault.
        SourceError: an invalid mount; the message names sensor and option.
    """

    def __init__(self, sensor: SensorConfig, rays: Rays) -> None:
        options, name = sensor.options, sensor.name
        world = World.of(options)
        materials = np.array([target.reflectivity for target in world.targets])
        mount = make_mount(name, options["mount"], LIDAR)
        self._seed, self._noise_m = noise_seed(options["seed"], name, "lidar"), options["noise"]
        reach_m, faults = (
            _REACH_M * np.sqrt(10 * materials),
            read_faults(name, options, LIDAR_FAULTS),
        )
        self._view = View(world, mount, rays, None, reach_m, faults, self._seed)

    def look(self, index: int, t_s: float) -> tuple[Floats, npt.NDArray[np.uint8]]:
        """Return distances in m, 0 without a return, and reflectivities in percent [h, w]."""
        seen, _ = self._view.look(t_s)
        distance = seen.distance.astype(np.float64)
        light = 10 * seen.reflectivity * seen.cosine * np.float32(_REACH_M * _REACH_M)
        hit = (distance < HORIZON_M) & (distance * distance <= light)
        if self._noise_m:
            noise = normal(self._seed, "packets", index, distance.size).reshape(distance.shape)
            distance = np.where(hit, distance, 0) + noise * (_NOISE_M * self._noise_m)
        percent = np.where(hit, np.rint(seen.reflectivity * 100), 0)
        return np.where(hit, np.maximum(distance, 0), 0), percent.astype(np.uint8)


class SpinningScene:
    """The packets of one lidar's sweeps.

    The lidar turns at a speed near the set one, at which a sweep has whole packets.

    Args:
        sensor: the sensor's entry.
        decoder: of its packets, and their encoder.
        beams: the description of its beams.

    Attributes:
        period_ns: from sweep to sweep.
    """

    def __init__(self, sensor: SensorConfig, decoder: PacketDecoder, beams: Beams) -> None:
        assert isinstance(decoder, PacketEncoder)
        self._decoder, self._encoder = decoder, decoder
        per_turn = 1e9 / (decoder.column_ns * (decoder.rate_hz or 10.0))
        self._packets = round(per_turn / decoder.columns)
        count = self._packets * decoder.columns
        self.period_ns = round(count * decoder.column_ns)
        number, whole = np.arange(count), count
        if beams.mirrors is not None:
            number = _find_fired(beams, number * decoder.turn // whole, decoder.columns)
            self._packets, count = len(number) // decoder.columns, len(number)
        azimuth = number * decoder.turn // whole
        shape = len(decoder.returns), count, decoder.channels
        empty = Columns(
            azimuth.astype("<u4"),
            START_NS + np.rint(number * decoder.column_ns).astype(np.int64),
            np.zeros(shape, "<u2"),
            np.zeros(shape, "u1"),
            np.zeros(shape, "u1") if decoder.confidence else None,
            np.arange(count).astype("u1") % 2 if len(decoder.states) > 1 else None,
        )
        # What the packets tell of the columns, to the resolution of the packets.
        told = decoder.decode(self._encoder.encode(empty), empty.t_ns[:: decoder.columns])
        self._columns = replace(empty, azimuth=told.azimuth, state=told.state)
        self._view = SceneView(sensor, make_rays(beams, self._columns))
        self._fires = np.array([[t is not None for t in row] for row in decoder.states.values()])
        self._most = min(65535, (1 << 14) - 1 if decoder.confidence else 65535)

    def sweep(self, index: int, shift_ns: int = 0) -> tuple[Packets, npt.NDArray[np.int64]]:
        """Return a sweep's packets, and the times at which they are complete, ns.

        All returns of a measurement are the same.

        Args:
            index: of the sweep.
            shift_ns: by which the lidar's clock is ahead.
        """
        decoder, since_ns = self._decoder, index * self.period_ns
        distance, percent = self._view.look(index, since_ns * 1e-9)
        ranges = np.rint(distance * (1000 / decoder.unit_mm))
        ranges = np.where(ranges <= self._most, ranges, 0)
        states = self._columns.state
        if states is not None:
            places = {state: place for place, state in enumerate(decoder.states)}
            chosen = [places.get(state, 0) for state in states.tolist()]
            ranges = np.where(self._fires[chosen].T, ranges, 0)
        light = np.where(ranges > 0, percent, 0)
        columns = replace(
            self._columns,
            t_ns=self._columns.t_ns + since_ns + shift_ns,
            ranges=np.broadcast_to(ranges.T.astype("<u2"), self._columns.ranges.shape),
            reflectivity=np.broadcast_to(light.T.astype("u1"), self._columns.ranges.shape),
        )
        packets = self._encoder.encode(columns, index * self._packets)
        ends = columns.t_ns[decoder.columns - 1 :: decoder.columns] - shift_ns
        ends = ends + round(decoder.column_ns)
        return packets, ends


class SimulatedSource:
    """Source of a lidar in the simulated world, endless; its packets are decoded as real ones.

    Args:
        family: the vendor's family.
    """

    def __init__(self, family: Family) -> None:
        self._family, self._sensor = family, family.sensor

    def open(self) -> Sequence[StreamSpec]:
        """Make the world and declare the stream.

        Raises:
            SourceError: an invalid mount, or a model without angles of its design.
        """
        family = self._family
        packet = family.make_blank_packet(self._sensor.options["model"] or family.models[0])
        try:
            decoder = family.make_decoder(packet)
            self._stream = family.start(packet, live=False)
        except FormatError as error:
            raise self._sensor.fault(error) from None
        specs = self._stream.specs(finite=False)
        beams = Beams.of_text(specs[0].files[BEAMS], self._sensor.name)
        self._scene = SpinningScene(self._sensor, decoder, beams)
        return specs

    def items(self) -> Iterator[Item]:
        """Yield sweeps without end; a stamp is the time at which its last packet is complete."""
        for index in itertools.count():
            packets, t_ns = self._scene.sweep(index)
            yield from self._stream.take(packets, t_ns, t_ns)

    def close(self) -> None:
        """Do nothing: the source holds no resources."""


class CloudScene(Protocol):
    """Packets of a simulated solid-state lidar's sweeps.

    Attributes:
        first: a packet without returns.
    """

    first: bytes

    def sweep(self, index: int) -> tuple[Packets, npt.NDArray[np.int64]]:
        """Return a sweep's packets, and the times at which they are complete, ns."""


class CloudSource:
    """Source of a solid-state lidar in the simulated world, endless.

    Args:
        family: the vendor's family.
        scene: the lidar's packets.
    """

    def __init__(self, family: Family, scene: CloudScene) -> None:
        self._family, self._scene = family, scene

    def open(self) -> Sequence[StreamSpec]:
        """Declare the stream."""
        self._stream = self._family.start(self._scene.first, live=False)
        return self._stream.specs(finite=False)

    def items(self) -> Iterator[Item]:
        """Yield sweeps without end; a stamp is the time at which its last packet is complete."""
        for index in itertools.count():
            packets, t_ns = self._scene.sweep(index)
            yield from self._stream.take(packets, t_ns, t_ns)

    def close(self) -> None:
        """Do nothing: the source holds no resources."""
