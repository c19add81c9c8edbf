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

import cv2
import numpy as np
import numpy.typing as npt

from recorder.contract.errors import FormatError
from recorder.processing.radar_array import AntennaArray
from recorder.processing.radar_cfar import find_peaks, log_noise, log_power, vertex

Floats = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Complex64 = npt.NDArray[np.complex64]

SPEED_OF_LIGHT = 299_792_458.0  # m/s
_PLACES = {"qqii": (2, 0, 3, 1), "iiqq": (0, 2, 1, 3)}
"""Of I, Q, I, Q of two samples among four recorded values.

Two LVDS lanes carry a chirp, so that two values of I stand beside two of Q.
"""
_ORDERS = tuple(_PLACES)

_ALIAS_GAIN = 1.25  # by how much another speed must fit better than the one nearest to zero
_HOPEFUL = 0.8
"""Of the fit of the speed nearest to zero, on the coarse grid of directions, whose steps lose 0.5
dB at most: another speed with less will not fit better by `_ALIAS_GAIN`."""


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
    """Finds targets in frames of one chirp configuration.  Safe for several threads.

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
        self._threshold = threshold_db / 10 * np.log(10)  # of logarithms
        chirps, tx, _, samples = geometry.shape
        range_window = np.hanning(samples + 2)[1:-1]
        doppler_window = np.hanning(chirps + 2)[1:-1]
        # A tone of amplitude 1 has power 1, whatever the windows.
        scale = range_window.sum() * doppler_window.sum()
        window = np.outer(doppler_window, range_window) / scale
        if geometry.iq_order is None:
            window *= 2
        else:
            window = np.repeat(window, 2, axis=1)  # of real and imaginary parts
        self._weights: Float32 = window.astype(np.float32)
        self._array: AntennaArray | None = None
        if geometry.tx_m is not None and geometry.rx_m is not None:
            self._array = AntennaArray(geometry.tx_m, geometry.rx_m, geometry.wavelength)
        self._turn_back = np.exp(-2j * np.pi * geometry.tx_turns)
        self._late_s = np.arange(tx) * geometry.chirp_time / tx

    def spectra(self, iq: npt.NDArray[np.int16]) -> Complex64:
        """Doppler and range of each antenna pair.

        Args:
            iq: int16 [chirps, tx, rx, values], as recorded.

        Returns:
            complex64 [tx, rx, doppler, range], contiguous; Doppler cells begin at 0 and wrap
            round.
        """
        chirps, tx, rx, _ = iq.shape
        order, ranges = self.geometry.iq_order, self.geometry.ranges
        if order is None:
            samples = iq.transpose(1, 2, 0, 3) * self._weights
            spectrum = np.fft.rfft(samples, axis=-1)[..., :ranges]
            return np.ascontiguousarray(np.fft.fft(spectrum, axis=-2), np.complex64)
        pairs = to_pairs(iq, order).reshape(chirps, tx * rx, 2 * ranges)
        windowed = np.empty((tx * rx, chirps, 2 * ranges), np.float32)
        windowed[...] = pairs.transpose(1, 0, 2)
        windowed *= self._weights
        out = np.empty((tx * rx, chirps, ranges, 2), np.float32)
        for source, target in zip(windowed.reshape(out.shape), out, strict=True):
            cv2.dft(source, target, cv2.DFT_COMPLEX_OUTPUT)
        return out.view(np.complex64).reshape(tx, rx, chirps, ranges)

    def cube(self, iq: npt.NDArray[np.int16]) -> Complex64:
        """As `spectra`, complex64 [doppler, tx, rx, range]."""
        return self.spectra(iq).transpose(2, 0, 1, 3)

    def detect(self, iq: npt.NDArray[np.int16]) -> Detections:
        """Targets of a frame.

        Args:
            iq: int16 [chirps, tx, rx, values], as recorded.
        """
        return self.find(self.spectra(iq))

    def find(self, spectra: Complex64) -> Detections:
        """Targets of a frame.

        Args:
            spectra: complex64 [tx, rx, doppler, range], of `spectra`.
        """
        power = mean_power(spectra)
        level = log_power(power)
        noise = log_noise(level)
        cells = find_peaks(power, level > noise + self._threshold)
        strength = power[cells[:, 0], cells[:, 1]]
        cells = cells[np.argsort(-strength, kind="stable")[: self.limit]]
        doppler, ranges = cells[:, 0], cells[:, 1]
        geometry, chirps = self.geometry, len(power)
        at_doppler = doppler + vertex(power, cells, 0, wrap=True)
        at_doppler = np.where(at_doppler >= chirps / 2, at_doppler - chirps, at_doppler)
        velocity = at_doppler * geometry.doppler_resolution
        direction = np.zeros((len(cells), 3))
        direction[:, 0] = 1.0
        if self._array is not None and len(cells):
            signal = spectra[:, :, doppler, ranges].transpose(2, 0, 1) * self._turn_back[:, None]
            velocity, direction = self._resolve(self._array, signal, velocity)
        distance = (ranges + vertex(power, cells, 1, wrap=False)) * geometry.range_resolution
        distance = np.maximum(distance - velocity * geometry.coupling_s, 0.0)
        snr = level[doppler, ranges] - noise[doppler, ranges]
        return Detections(
            distance.astype(np.float32),
            velocity.astype(np.float32),
            (10 * np.log10(power[doppler, ranges])).astype(np.float32),
            (10 / np.log(10) * snr).astype(np.float32),
            _unit32(direction),
        )

    def _resolve(
        self, array: AntennaArray, signal: npt.NDArray[np.complex128], velocity: Floats
    ) -> tuple[Floats, Floats]:
        """Speeds and directions that fit the phases over the array best.

        Args:
            array: the radar's.
            signal: [n, tx, rx].
            velocity: [n], of the Doppler cells.
        """
        count, tx, rx = signal.shape
        # Multiples that are tx apart turn the phases alike; each stands for its nearest to zero.
        turns = np.tile(np.arange(tx)[:, None], (1, count))
        turns = np.where(turns > tx / 2, turns - tx, turns)
        if tx % 2 == 0:
            turns[tx // 2] = np.where(velocity > 0, -tx // 2, tx // 2)
        speeds = velocity + turns * 2 * self.geometry.max_velocity  # [tx, n]
        phase = -4 * np.pi / self.geometry.wavelength * speeds[..., None] * self._late_s
        turned = (signal * np.exp(1j * phase)[..., None]).reshape(tx * count, tx * rx)
        rough, start = array.coarse(turned)
        # Another multiple than the one nearest to zero must fit better than the grid is coarse.
        hopeful = np.flatnonzero(rough >= np.tile(_HOPEFUL * rough[:count], tx))
        fitted, direction = np.full(tx * count, -1.0), np.zeros((tx * count, 3))
        fitted[hopeful], direction[hopeful] = array.climb(turned[hopeful], start[hopeful])
        best, chosen = fitted[:count].copy(), np.arange(count)
        for number in range(1, tx):
            of_number = np.arange(number * count, (number + 1) * count)
            better = fitted[of_number] > best * _ALIAS_GAIN
            best[better] = fitted[of_number][better]
            chosen[better] = of_number[better]
        return speeds.reshape(-1)[chosen], direction[chosen]


def to_pairs(iq: npt.NDArray[np.int16], order: str) -> npt.NDArray[np.int16]:
    """Recorded values [..., values] with each sample's I and Q side by side, in that order."""
    quads = np.ascontiguousarray(iq).reshape(1, -1, 4)
    pairs = np.empty_like(quads)
    moves = [place for move in zip(_PLACES[order], range(4), strict=True) for place in move]
    cv2.mixChannels([quads], [pairs], moves)
    return pairs.reshape(iq.shape)


def mean_power(spectra: Complex64) -> Float32:
    """Power over all antennas, f4 [doppler, range], of spectra [tx, rx, doppler, range]."""
    tx, rx, doppler, ranges = spectra.shape
    parts = spectra.view(np.float32).reshape(tx * rx, -1)
    squares = np.einsum("ai,ai->i", parts, parts).reshape(doppler, ranges, 2)
    return np.asarray((squares[..., 0] + squares[..., 1]) * np.float32(1 / (tx * rx)))


def _unit32(vectors: Floats) -> Float32:
    unit: Float32 = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit
