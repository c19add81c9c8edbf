"""Detections from the raw samples of an FMCW radar whose transmitters take turns (TDM-MIMO).

Range and Doppler by Fourier transforms (TI, "The fundamentals of millimeter wave radar sensors",
SPYY005), detection by a CFAR on the logarithm of the power summed over all antennas, directions by
matching the phases over the virtual array.  `radar.json` says all that is needed.

::

    radar = RadarProcessor(RadarGeometry.of_metadata(text, where), threshold_db=12.0)
    found = radar.detect(iq)             # int16 [chirps, tx, rx, values]
    found.range_m, found.velocity_m_s, found.direction

A target that moves faster than ``max_doppler`` appears with a speed that is off by a multiple of
twice that.  Between one transmitter and the next it moves on, too, so that the phases over the
array fit one multiple best: that one is taken.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.contract.errors import FormatError

Floats = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Power = npt.NDArray[np.float32]

SPEED_OF_LIGHT = 299_792_458.0  # m/s
_ORDERS = ("qqii", "iiqq")

GUARD = (3, 3)
"""Cells of range and Doppler on each side of a cell that tell nothing of the noise around it."""
TRAIN = (8, 4)
"""Cells of range and Doppler beyond those, on each side, that do."""
_ALIAS_GAIN = 1.25  # by how much another speed must fit better than the one nearest to zero
_MAX_SINE_UP = 0.7
_LEAK_CELLS = 12
_TINY = 1e-30


@dataclass(frozen=True)
class RadarGeometry:
    """What `radar.json` says.

    Attributes:
        shape: of a frame in samples: chirps, transmitters, receivers, samples.
        iq_order: ``qqii``, ``iiqq``; None where samples are real.
        range_resolution: m.
        doppler_resolution: m/s.
        wavelength: m.
        chirp_time: from a transmitter's chirp to its next, s.
        frame_time: of all chirps of a frame, s.
        coupling_s: by how many metres a target seems farther away per m/s of its radial speed.
        tx_m, rx_m: f8 [antennas, 3], x forward, y left, z up; None where the file has none.
        tx_turns: f8 [tx], to be taken off a transmitter's phase.
        document: everything in the file.
    """

    shape: tuple[int, int, int, int]
    iq_order: str | None
    range_resolution: float
    doppler_resolution: float
    wavelength: float
    chirp_time: float
    frame_time: float
    coupling_s: float
    tx_m: Floats | None
    rx_m: Floats | None
    tx_turns: Floats
    document: dict[str, Any]

    @classmethod
    def of_metadata(
        cls, text: str, where: str, raw_shape: tuple[int, ...] | None = None
    ) -> RadarGeometry:
        """From the text of ``radar.json``.

        Args:
            text: JSON.
            where: the file, for messages.
            raw_shape: of the channel ``iq``, where the file does not say so.

        Raises:
            FormatError: it lacks what processing needs; names file and key.
        """
        try:
            values = json.loads(text)
            raw = tuple(int(n) for n in values.get("raw_shape") or raw_shape or ())
            if len(raw) != 4:
                raise KeyError("raw_shape")
            order = values.get("iq_order")
            if "iq_order" not in values and 2 * int(values["shape"][-1]) == raw[3]:
                order = _ORDERS[0]  # red-rover's own files do not say so
            if order is not None and order not in _ORDERS:
                raise ValueError(f"iq_order {order!r} is none of {', '.join(_ORDERS)}")
            samples = raw[3] if order is None else raw[3] // 2
            doppler = float(values["doppler_resolution"])
            if "chirp_time" in values:
                chirp_s = float(values["chirp_time"]) * 1e-6
                wavelength = float(values["wavelength"])
            else:  # of another recorder: with 77 GHz what is left is nearly right
                wavelength = SPEED_OF_LIGHT / 77e9
                chirp_s = wavelength / (2 * raw[0] * doppler)
            frame_s = float(values.get("frame_time") or chirp_s * raw[0] * 1e3) * 1e-3
            coupling = 0.0
            if values.get("freq_slope"):
                coupling = SPEED_OF_LIGHT / wavelength / (float(values["freq_slope"]) * 1e12)
            antennas = values.get("antennas") or {}
            tx = rx = None
            if antennas:
                tx = np.array(antennas["tx_m"], np.float64).reshape(raw[1], 3)
                rx = np.array(antennas["rx_m"], np.float64).reshape(raw[2], 3)
            turns = np.array(antennas.get("tx_turns") or [0.0] * raw[1], np.float64)
            return cls(
                (raw[0], raw[1], raw[2], samples), order, float(values["range_resolution"]),
                doppler, wavelength, chirp_s, frame_s, coupling, tx, rx,
                turns.reshape(raw[1]), dict(values),
            )  # fmt: skip
        except KeyError as error:
            raise FormatError(f"{where}: lacks {error.args[0]}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise FormatError(f"{where}: is of no use: {error}") from None

    @property
    def ranges(self) -> int:
        """Cells of range: real samples tell half as many apart as there are."""
        return self.shape[3] if self.iq_order is not None else self.shape[3] // 2

    @property
    def max_velocity(self) -> float:
        """Radial speed at which Doppler cells wrap round, m/s."""
        return self.doppler_resolution * self.shape[0] / 2


@dataclass(frozen=True)
class Detections:
    """What a frame shows, the strongest first.

    Attributes:
        range_m: f4 [n].
        velocity_m_s: f4 [n], radial, positive where the range grows.
        power_db: f4 [n], above one step of the converter squared, per antenna.
        snr_db: f4 [n], above the noise around.
        direction: f4 [n, 3], unit vectors, x forward, y left, z up.
    """

    range_m: Float32
    velocity_m_s: Float32
    power_db: Float32
    snr_db: Float32
    direction: Float32

    def __len__(self) -> int:
        return len(self.range_m)


class RadarProcessor:
    """Finds targets in frames of one chirp configuration.

    Args:
        geometry: of the radar.
        threshold_db: by how much a cell must exceed the noise around it.
        limit: detections kept of a frame, the strongest.
    """

    def __init__(
        self, geometry: RadarGeometry, threshold_db: float = 12.0, limit: int = 256
    ) -> None:
        self.geometry = geometry
        self.limit = limit
        self._threshold = 10 ** (threshold_db / 10)
        chirps, tx, _, samples = geometry.shape
        self._range_window = np.hanning(samples + 2)[1:-1].astype(np.float32)
        self._doppler_window = np.hanning(chirps + 2)[1:-1].astype(np.float32)
        # A tone of amplitude 1 has power 1, whatever the windows.
        self._scale = float(self._range_window.sum() * self._doppler_window.sum())
        if geometry.iq_order is None:
            self._scale /= 2
        self._array = _Array(geometry) if geometry.tx_m is not None else None
        self._turn_back = np.exp(-2j * np.pi * geometry.tx_turns).astype(np.complex64)
        self._late_s = np.arange(tx) * geometry.chirp_time / tx

    def cube(self, iq: npt.NDArray[np.int16]) -> npt.NDArray[np.complex64]:
        """Range and Doppler of each antenna pair.

        Args:
            iq: int16 [chirps, tx, rx, values], as recorded.

        Returns:
            complex64 [doppler, tx, rx, range]; Doppler cells begin at 0 and wrap round.
        """
        samples = to_samples(iq, self.geometry.iq_order)
        samples = samples * self._range_window
        if self.geometry.iq_order is None:
            spectrum = np.fft.rfft(samples, axis=-1)[..., : self.geometry.ranges]
        else:
            spectrum = np.fft.fft(samples, axis=-1)
        spectrum = spectrum.astype(np.complex64, copy=False)
        spectrum *= self._doppler_window[:, None, None, None]
        out = np.fft.fft(spectrum, axis=0).astype(np.complex64, copy=False)
        out *= np.complex64(1 / self._scale)
        return out

    def detect(self, iq: npt.NDArray[np.int16]) -> Detections:
        """Targets of a frame.

        Args:
            iq: int16 [chirps, tx, rx, values], as recorded.
        """
        cube = self.cube(iq)
        power = (cube.real**2 + cube.imag**2).mean(axis=(1, 2))
        noise = noise_around(power)
        cells = peaks(power, np.maximum(noise * np.float32(self._threshold), leakage(power)))
        strength = power[cells[:, 0], cells[:, 1]]
        cells = cells[np.argsort(-strength, kind="stable")[: self.limit]]
        doppler, ranges = cells[:, 0], cells[:, 1]
        snr = power[doppler, ranges] / noise[doppler, ranges]
        geometry, chirps = self.geometry, len(power)
        at_doppler = doppler + _vertex(power, cells, 0, wrap=True)
        at_doppler = np.where(at_doppler >= chirps / 2, at_doppler - chirps, at_doppler)
        velocity = at_doppler * geometry.doppler_resolution
        direction = np.zeros((len(cells), 3))
        direction[:, 0] = 1.0
        if self._array is not None and len(cells):
            signal = cube[doppler, :, :, ranges] * self._turn_back[:, None]
            velocity, direction = self._resolve(signal, velocity)
        distance = (ranges + _vertex(power, cells, 1, wrap=False)) * geometry.range_resolution
        distance = np.maximum(distance - velocity * geometry.coupling_s, 0.0)
        return Detections(
            distance.astype(np.float32),
            velocity.astype(np.float32),
            (10 * np.log10(power[doppler, ranges])).astype(np.float32),
            (10 * np.log10(snr)).astype(np.float32),
            _unit32(direction),
        )

    def _resolve(
        self, signal: npt.NDArray[np.complex64], velocity: Floats
    ) -> tuple[Floats, Floats]:
        """Speeds and directions that fit the phases over the array best.

        Args:
            signal: [n, tx, rx].
            velocity: [n], of the Doppler cells.
        """
        assert self._array is not None
        tx = signal.shape[1]
        span = 2 * self.geometry.max_velocity
        best = np.full(len(signal), -1.0)
        speeds, directions = velocity.copy(), np.zeros((len(signal), 3))
        # Multiples that are tx apart turn the phases alike; each stands for its nearest to zero.
        for number in range(tx):
            turns = np.full(len(signal), number)
            turns = np.where(turns > tx / 2, turns - tx, turns)
            if 2 * number == tx:
                turns = np.where(velocity > 0, -turns, turns)
            speed = velocity + turns * span
            phase = -4 * np.pi / self.geometry.wavelength * speed[:, None] * self._late_s
            fitted, direction = self._array.match(signal * np.exp(1j * phase)[:, :, None])
            better = fitted > best * (_ALIAS_GAIN if number else 1.0)
            best = np.where(better, fitted, best)
            speeds = np.where(better, speed, speeds)
            directions[better] = direction[better]
        return speeds, directions


class _Array:
    """Directions by matching phases over the virtual array."""

    def __init__(self, geometry: RadarGeometry) -> None:
        assert geometry.tx_m is not None
        assert geometry.rx_m is not None
        places = (geometry.tx_m[:, None] + geometry.rx_m[None]).reshape(-1, 3)
        self._places = 2 * np.pi / geometry.wavelength * places  # radians per unit of direction
        extent = (places.max(axis=0) - places.min(axis=0)) / geometry.wavelength
        self._level = extent[2] < 1e-6
        sideways = self._steps(extent[1])
        up = np.zeros(1) if self._level else self._steps(extent[2]) * _MAX_SINE_UP
        grid = np.stack(np.meshgrid(sideways, up, indexing="ij"), axis=-1).reshape(-1, 2)
        self._grid = grid[np.sum(grid * grid, axis=1) <= 0.999]
        self._step = (sideways[1] - sideways[0], 0.0 if self._level else up[1] - up[0])
        self._steering = self._steer(self._grid).astype(np.complex64)

    @staticmethod
    def _steps(extent: float) -> Floats:
        """Sines, a quarter of a beam's width apart."""
        return np.linspace(-1, 1, 2 * max(4, int(np.ceil(4 * extent))) + 1)

    def _steer(self, sines: Floats) -> npt.NDArray[np.complex128]:
        """[n, antennas]: what phases of a target in these directions are turned back by."""
        forward = np.sqrt(np.maximum(1 - np.sum(sines * sines, axis=-1), 0.0))
        unit = np.stack([forward, sines[..., 0], sines[..., 1]], axis=-1)
        return np.asarray(np.exp(1j * (unit @ self._places.T)))

    def match(self, signal: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """The best fit's power and unit vectors [n, 3], of signals [n, tx, rx]."""
        flat = signal.reshape(len(signal), -1)
        fit = np.abs(flat.astype(np.complex64) @ self._steering.T)
        sines = self._grid[np.argmax(fit, axis=1)].copy()
        step = np.array(self._step)
        for _ in range(6):  # climb, each time by steps of half the size
            step = step / 2
            moves = [(a, b) for a in (-1, 0, 1) for b in ((0,) if self._level else (-1, 0, 1))]
            around = sines[:, None] + np.array(moves) * step
            outside = np.sum(around * around, axis=2) > 1
            value = np.abs(np.einsum("nma,na->nm", self._steer(around), flat))
            value[outside] = -1.0
            sines = around[np.arange(len(sines)), np.argmax(value, axis=1)]
        value = np.abs(np.einsum("na,na->n", self._steer(sines), flat)) ** 2
        forward = np.sqrt(np.maximum(1 - np.sum(sines * sines, axis=1), 0.0))
        return value, np.stack([forward, sines[:, 0], sines[:, 1]], axis=1)


def to_samples(iq: npt.NDArray[np.int16], order: str | None) -> npt.NDArray[Any]:
    """Recorded values [..., values] as samples: complex64 of half as many, or float32 real ones.

    Two LVDS lanes carry a chirp, so that two values of I stand beside two of Q.
    """
    if order is None:
        return iq.astype(np.float32)
    pairs = iq.reshape(*iq.shape[:-1], -1, 2, 2)
    first, second = pairs[..., 0, :], pairs[..., 1, :]
    real, imaginary = (second, first) if order == "qqii" else (first, second)
    samples = np.empty(real.shape, np.complex64)
    samples.real, samples.imag = real, imaginary
    return samples.reshape(*iq.shape[:-1], -1)


def noise_around(power: Power) -> Power:
    """The geometric mean of the cells around each one, without its nearest: f4 like `power`.

    Of logarithms the mean is hardly moved by a few strong targets nearby, which would hide weaker
    ones.  Doppler (axis 0) wraps round; in range (axis 1) cells beyond the ends do not count.
    """
    outer = (GUARD[1] + TRAIN[1], GUARD[0] + TRAIN[0])
    outer = (min(outer[0], (power.shape[0] - 1) // 2), outer[1])
    inner = (min(GUARD[1], max(0, outer[0] - 1)), GUARD[0])
    level = np.log(np.maximum(power, _TINY)).astype(np.float64)
    total, count = _box(level, outer)
    near, near_count = _box(level, inner)
    return np.exp((total - near) / np.maximum(count - near_count, 1)).astype(np.float32)


def _box(values: Floats, reach: tuple[int, int]) -> tuple[Floats, Floats]:
    """Sums over boxes of cells, and how many cells each has."""
    a, b = reach
    length, ranges = values.shape
    padded = np.concatenate([values[length - a :], values, values[:a]])
    sums = np.concatenate([np.zeros((1, ranges)), np.cumsum(padded, axis=0)])
    rows = sums[2 * a + 1 :] - sums[:length]
    sums = np.concatenate([np.zeros((length, 1)), np.cumsum(rows, axis=1)], axis=1)
    low = np.maximum(np.arange(ranges) - b, 0)
    high = np.minimum(np.arange(ranges) + b + 1, ranges)
    return sums[:, high] - sums[:, low], (high - low) * float(2 * a + 1) * np.ones((length, 1))


def leakage(power: Power) -> Power:
    """What strong cells put into others of their range or their Doppler, at most: f4 like `power`.

    A Hann window's side lobes begin at -31 dB, 2.4 cells away, and fall by 18 dB an octave; what
    is above 6 dB more than that is a target of its own.
    """
    most = np.zeros_like(power)
    for cells in range(2, _LEAK_CELLS + 1):
        share = np.float32(10 ** (-2.5 - 6 * np.log10(max(cells, 2.5) / 2.5)))
        for axis in (0, 1):
            if 2 * cells >= power.shape[axis]:
                continue
            for step in (cells, -cells):
                other = np.roll(power, step, axis=axis)
                if axis == 1:  # nothing leaks round the ends of the range
                    other[:, slice(0, step) if step > 0 else slice(step, None)] = 0.0
                np.maximum(most, other * share, out=most)
    return most


def peaks(power: Power, threshold: Power) -> npt.NDArray[np.intp]:
    """Cells above the threshold that no neighbour exceeds: [n, (doppler, range)].

    The first cell of range is left out: it holds what leaks from the transmitter.
    """
    good = power > threshold
    good[:, 0] = False
    for along, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
        other = np.roll(power, step, axis=along)
        if along == 1:
            other[:, 0 if step == 1 else -1] = 0.0
        good &= (power > other) if step == 1 else (power >= other)
    return np.argwhere(good)


def _vertex(power: Power, cells: npt.NDArray[np.intp], axis: int, *, wrap: bool) -> Floats:
    """How far from its cell's middle a peak is, -0.5 to 0.5: of a parabola through logarithms."""
    size = power.shape[axis]
    at = cells[:, axis]
    values = []
    for step in (-1, 0, 1):
        where = (at + step) % size if wrap else np.clip(at + step, 0, size - 1)
        pair = (where, cells[:, 1]) if axis == 0 else (cells[:, 0], where)
        values.append(np.log(np.maximum(power[pair], 1e-30)).astype(np.float64))
    before, middle, after = values
    curve = before - 2 * middle + after
    shift = np.where(curve < 0, 0.5 * (before - after) / np.where(curve < 0, curve, 1.0), 0.0)
    if not wrap:
        shift = np.where((at == 0) | (at == size - 1), 0.0, shift)
    return np.asarray(np.clip(shift, -0.5, 0.5))


def _unit32(vectors: Floats) -> Float32:
    unit: Float32 = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit
