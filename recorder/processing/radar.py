"""Detections from the raw samples of an FMCW radar whose transmitters take turns (TDM-MIMO).

Range and Doppler are computed by Fourier transforms (TI, "The fundamentals of millimeter wave radar
sensors", SPYY005).  Targets are detected by a CFAR on the logarithm of the power summed over all
antennas.  Directions are found by matching the phases over the virtual array.  `radar.json`
contains all parameters.

::

    radar = RadarProcessor(RadarGeometry.of_metadata(text, where), threshold_db=12.0)
    found = radar.detect(iq)             # int16 [chirps, tx, rx, values]
    found.range_m, found.velocity_m_s, found.direction

A target faster than ``max_doppler`` appears with a speed that is off by a multiple of twice that
value.  The target also moves between the chirps of two transmitters, so that the phases over the
array fit one multiple best; that multiple is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.contract.errors import FormatError
from recorder.processing.radar_array import AntennaArray
from recorder.processing.radar_cfar import (
    DOPPLER,
    RANGE,
    find_peaks,
    log_noise,
    log_power,
    strongest,
    vertex,
)
from recorder.processing.radar_spectra import (
    ORDERS,
    Complex64,
    antenna_spectra,
    hann_window,
    mean_power,
    values_at,
)

Floats = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]

SPEED_OF_LIGHT = 299_792_458.0  # m/s
_ALIAS_GAIN = 1.25  # another multiple must fit better than the smallest speed by this factor


@dataclass(frozen=True)
class RadarGeometry:
    """Contents of `radar.json`.

    Attributes:
        shape: chirps, transmitters, receivers and samples of a frame.
        iq_order: ``qqii``, ``iiqq``; None where samples are real.
        range_resolution: m.
        doppler_resolution: m/s.
        wavelength: m.
        chirp_time: time between two chirps of one transmitter, s.
        frame_time: duration of all chirps of a frame, s.
        coupling_s: apparent increase of a target's range in m per m/s of its radial speed.
        tx_m, rx_m: f8 [antennas, 3], x forward, y left, z up; None where the file has none.
        tx_turns: f8 [tx], turns to subtract from each transmitter's phase.
        document: all values of the file.
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
        """Parse the text of ``radar.json``.

        Args:
            text: JSON.
            where: path of the file, for messages.
            raw_shape: shape of the channel ``iq``, used where the file has none.

        Raises:
            FormatError: a value is missing or invalid; the message names file and key.
        """
        try:
            values = json.loads(text)
            raw = tuple(int(n) for n in values.get("raw_shape") or raw_shape or ())
            if len(raw) != 4:
                raise KeyError("raw_shape")
            order = values.get("iq_order")
            if "iq_order" not in values and 2 * int(values["shape"][-1]) == raw[3]:
                order = ORDERS[0]  # red-rover's own files have no iq_order
            if order is not None and order not in ORDERS:
                raise ValueError(f"iq_order {order!r} is not one of {', '.join(ORDERS)}")
            samples = raw[3] if order is None else raw[3] // 2
            doppler = float(values["doppler_resolution"])
            if "chirp_time" in values:
                chirp_s = float(values["chirp_time"]) * 1e-6
                wavelength = float(values["wavelength"])
            else:  # file of another recorder: the wavelength of 77 GHz is nearly right
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
            raise FormatError(f"{where}: is invalid: {error}") from None

    @property
    def ranges(self) -> int:
        """Number of range cells: the number of samples, or half of it for real samples."""
        return self.shape[3] if self.iq_order is not None else self.shape[3] // 2

    @property
    def max_velocity(self) -> float:
        """Radial speed at which Doppler cells wrap around, m/s."""
        return self.doppler_resolution * self.shape[0] / 2


@dataclass(frozen=True)
class Detections:
    """Detections of a frame, the strongest first.

    Attributes:
        range_m: f4 [n].
        velocity_m_s: f4 [n], radial, positive where the range grows.
        power_db: f4 [n], dB above one step of the converter squared, per antenna.
        snr_db: f4 [n], dB above the surrounding noise.
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
        geometry: geometry of the radar.
        threshold_db: level above the surrounding noise that a cell must exceed.
        limit: largest number of detections kept per frame, the strongest first.
    """

    def __init__(
        self, geometry: RadarGeometry, threshold_db: float = 12.0, limit: int = 256
    ) -> None:
        self.geometry = geometry
        self.limit = limit
        self._threshold = threshold_db / 10 * np.log(10)  # difference of natural logarithms
        chirps, tx, _, samples = geometry.shape
        self._window = hann_window(chirps, samples, geometry.iq_order)
        self._array: AntennaArray | None = None
        if geometry.tx_m is not None and geometry.rx_m is not None:
            self._array = AntennaArray(geometry.tx_m, geometry.rx_m, geometry.wavelength)
        self._turn_back = np.exp(-2j * np.pi * geometry.tx_turns)
        # Multiples that differ by tx turn the phases alike; only the one nearest to zero is kept.
        turns = np.arange(tx)
        self._multiples = [
            np.where(turns > half, turns - tx, turns) for half in ((tx - 1) // 2, tx / 2)
        ]
        self._late_s = np.arange(tx) * geometry.chirp_time / tx

    def spectra(self, iq: npt.NDArray[np.int16]) -> Complex64:
        """Doppler and range spectra of each antenna pair.

        Args:
            iq: int16 [chirps, tx, rx, values], as recorded.

        Returns:
            complex64 [tx, rx, doppler, range], contiguous; Doppler cells begin at 0 and wrap
            around.
        """
        return antenna_spectra(iq, self._window, self.geometry.iq_order)

    def cube(self, iq: npt.NDArray[np.int16]) -> Complex64:
        """The result of `spectra` as complex64 [doppler, tx, rx, range]."""
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
            spectra: complex64 [tx, rx, doppler, range], from `spectra`.
        """
        return self.find_all([spectra])[0]

    def find_all(self, spectra: Sequence[Complex64]) -> list[Detections]:
        """Targets of several frames; the same results as one by one, at a lower cost.

        Args:
            spectra: for each frame complex64 [tx, rx, doppler, range], from `spectra`.
        """
        power = np.stack([mean_power(one) for one in spectra])  # [frames, doppler, range]
        level = log_power(power)
        noise = log_noise(level)
        cells = find_peaks(power, level > noise + self._threshold)
        cells, counts = strongest(power, cells, self.limit)
        ends = np.cumsum(counts)
        geometry, (_, chirps, ranges) = self.geometry, power.shape
        place = cells % (chirps * ranges)
        doppler, column = place // ranges, place % ranges
        at_doppler = doppler + vertex(level, cells, DOPPLER)
        at_doppler = np.where(at_doppler >= chirps / 2, at_doppler - chirps, at_doppler)
        velocity = at_doppler * geometry.doppler_resolution
        direction = np.zeros((len(cells), 3))
        direction[:, 0] = 1.0
        if self._array is not None:
            parts = zip(spectra, np.split(place, ends[:-1]), strict=True)
            signal = np.concatenate([values_at(*part) for part in parts])
            signal = signal * self._turn_back[:, None]
            velocity, direction = self._resolve(self._array, signal, velocity)
        distance = (column + vertex(level, cells, RANGE)) * geometry.range_resolution
        distance = np.maximum(distance - velocity * geometry.coupling_s, 0.0)
        columns = (
            distance.astype(np.float32),
            velocity.astype(np.float32),
            (10 * np.log10(power.take(cells))).astype(np.float32),
            (10 / np.log(10) * (level.take(cells) - noise.take(cells))).astype(np.float32),
            _unit32(direction),
        )
        return [
            Detections(*(column[first:end] for column in columns))
            for first, end in pairwise([0, *ends.tolist()])
        ]

    def _resolve(
        self, array: AntennaArray, signal: npt.NDArray[np.complex128], velocity: Floats
    ) -> tuple[Floats, Floats]:
        """Speeds and directions that best fit the phases over the array.

        Args:
            array: the radar's antenna array.
            signal: [n, tx, rx].
            velocity: [n], velocities of the Doppler cells.
        """
        count, tx, rx = signal.shape
        turns = np.where(velocity[:, None] > 0, *self._multiples)
        speeds = velocity[:, None] + turns * 2 * self.geometry.max_velocity  # [n, multiple]
        phase = -4 * np.pi / self.geometry.wavelength * speeds[..., None] * self._late_s
        turned = signal[:, None] * np.exp(1j * phase)[..., None]  # [n, multiple, tx, rx]
        turned = turned.reshape(count, tx, tx * rx)
        rough, start = array.coarse(turned)
        # The grid's steps lose at most 0.5 dB, less than `_ALIAS_GAIN`: a multiple that fits worse
        # on the grid than the one nearest to zero cannot be chosen.
        candidates = rough >= rough[:, :1]
        fitted, direction = np.full((count, tx), -1.0), np.zeros((count, tx, 3))
        fitted[candidates], direction[candidates] = array.climb(
            turned[candidates], start[candidates]
        )
        best, chosen = fitted[:, 0], np.zeros(count, np.intp)
        for number in range(1, tx):
            better = fitted[:, number] > best * _ALIAS_GAIN
            best = np.where(better, fitted[:, number], best)
            chosen[better] = number
        every = np.arange(count)
        return speeds[every, chosen], direction[every, chosen]


def _unit32(vectors: Floats) -> Float32:
    unit: Float32 = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit
