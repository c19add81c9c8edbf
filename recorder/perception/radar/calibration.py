"""Measurement of the calibration of a radar's antennas, from frames of a standing vehicle.

A corner reflector at a known place is the better way: the path from each transmitter over the
reflector to each receiver is known exactly, near field included.  Without one, static clutter in
many directions is used: directions and antennas' errors are fitted in turn.  Clutter cannot show a
phase that grows evenly over the array, because another direction explains it as well: neither the
boresight, nor a raised transmitter's phase against elevation.  Nor does it show the range bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import RecorderError
from recorder.perception.radar.array import AntennaArray
from recorder.perception.radar.frames import find_step
from recorder.perception.radar.geometry import Floats, PhaseCalibration, RadarGeometry
from recorder.perception.radar.radar import RadarProcessor
from recorder.perception.radar.spectra import RANGE, Complex64, log_power, mean_power, vertex

Samples = npt.NDArray[np.int16]
Complex128 = npt.NDArray[np.complex128]

LEAKAGE_M: Final = 2.0
"""Clutter nearer than this range is leakage from the transmitters, or in the near field."""
LARGEST_RESIDUAL_DEG: Final = 15.0
_WINDOW_M: Final = 0.5  # around the reflector's range
_CLEAR_DB: Final = 15.0  # above what is beside it
_CLUTTER_SHARE: Final = 0.9  # of a cell's power that one plane wave explains
_LEAST_CELLS, _LEAST_BINS, _BIN_DEG = 12, 4, 10.0
_ROUNDS: Final = 60


class CalibrationError(RecorderError):
    """An error of frames that give no calibration.

    Example: the reflector is not at the given place, or the vehicle moves.
    """


@dataclass(frozen=True)
class Measured:
    """A measured calibration.

    Attributes:
        calibration: the calibration.
        frames: number of frames.
        cells: number of range cells that were used.
        level_db: power of the cells above their neighbours, dB.
    """

    calibration: PhaseCalibration
    frames: int
    cells: int
    level_db: float


def calibrate_by_reflector(
    geometry: RadarGeometry, frames: Iterable[Samples], place: tuple[float, float, float]
) -> Measured:
    """Measure the antennas by a corner reflector.

    Args:
        geometry: of the radar; its own calibration is not used.
        frames: int16 [chirps, tx, rx, values] each.
        place: of the reflector: range (m), azimuth (deg to the left), elevation (deg up).

    Raises:
        CalibrationError: nothing stands out there, something moves, or the phases vary too much.
    """
    processor = _create_processor(geometry)
    assert geometry.tx_m is not None
    assert geometry.rx_m is not None
    range_m, azimuth, elevation = place[0], *np.radians(place[1:])
    unit = np.array(
        [
            np.cos(elevation) * np.cos(azimuth),
            np.cos(elevation) * np.sin(azimuth),
            np.sin(elevation),
        ]
    )
    to_tx, from_rx = (np.linalg.norm(range_m * unit - at, axis=1) for at in
                      (geometry.tx_m, geometry.rx_m))  # fmt: skip
    path = to_tx[:, None] + from_rx[None]
    back = np.exp(-2j * np.pi * (path - path.mean()) / geometry.wavelength)
    cell_m, where = geometry.range_resolution, f"{range_m:g} m"
    near = np.abs(np.arange(geometry.ranges) * cell_m - range_m) <= max(_WINDOW_M, 3 * cell_m)
    near[[0, -1]] = False
    if not near.any():
        raise CalibrationError(f"{where} is beyond the radar's range")
    waves, ranges, levels = [], [], []
    for iq in frames:
        spectra = _compute_spectra(processor, iq)
        power = mean_power(spectra)
        column = int(np.argmax(np.where(near, power[0], 0)))
        every = power[:, near]
        if every.max() > np.median(every) * 10 ** (_CLEAR_DB / 10):
            _reject_motion(every.max(axis=1), where)
        cell = np.array([column])
        offset = float(vertex(log_power(power[None]), cell, RANGE)[0])
        ranges.append((column + offset) * cell_m)
        beside = np.abs(np.arange(geometry.ranges) - column)
        levels.append(power[0, column] / np.median(power[0, (beside > 3) & (beside <= 12)]))
        waves.append(spectra[:, :, 0, column] * geometry.factors * back)
    if not waves:
        raise CalibrationError("the session has no frame of the radar")
    level_db = float(10 * np.log10(np.median(levels)))
    if level_db < _CLEAR_DB:
        raise CalibrationError(
            f"nothing stands out at {where}: {level_db:.0f} dB above what is beside it, "
            f"{_CLEAR_DB:.0f} are needed"
        )
    if np.ptp(ranges) > cell_m:
        raise CalibrationError(
            f"the range changes by {np.ptp(ranges):.2f} m: vehicle or reflector moves"
        )
    coefficients, spread_deg = _invert(np.array(waves))
    residual = float(np.hypot(spread_deg, np.degrees(np.sqrt(0.5 * 10 ** (-level_db / 10)))))
    return Measured(
        _accept(coefficients, float(np.median(ranges)) - range_m, residual, "reflector"),
        len(waves), 1, level_db,
    )  # fmt: skip


def calibrate_by_clutter(geometry: RadarGeometry, frames: Iterable[Samples]) -> Measured:
    """Measure the antennas by the static things around a standing vehicle.

    Raises:
        CalibrationError: too few things or directions, a moving vehicle, or phases that vary too
            much.
    """
    processor = _create_processor(geometry)
    assert geometry.tx_m is not None
    assert geometry.rx_m is not None
    total, power, count = None, None, 0
    for iq in frames:
        spectra = _compute_spectra(processor, iq)
        still = spectra[:, :, 0].astype(np.complex128)
        total = still if total is None else total + still
        every = mean_power(spectra)
        power = every if power is None else power + every
        count += 1
    if total is None or power is None:
        raise CalibrationError("the session has no frame of the radar")
    far = np.arange(geometry.ranges) * geometry.range_resolution >= LEAKAGE_M
    _reject_motion(power[:, far].sum(axis=1), "the clutter")
    steady = np.abs(total).mean(axis=(0, 1))[far].sum()
    if steady < 0.5 * count**0.5 * np.sqrt(power[0, far]).sum():
        raise CalibrationError("the clutter's phases change from frame to frame: the vehicle moves")
    still_power = np.mean(np.abs(total) ** 2, axis=(0, 1))
    floor = np.median(still_power[far])
    peak = np.zeros(len(still_power), np.bool_)
    inner = still_power[1:-1]
    peak[1:-1] = (inner > still_power[:-2]) & (inner >= still_power[2:])
    columns = np.flatnonzero(peak & far & (still_power > floor * 10 ** (_CLEAR_DB / 10)))
    signal = np.moveaxis(total[:, :, columns], 2, 0) * geometry.factors
    array = AntennaArray(geometry.tx_m, geometry.rx_m, geometry.wavelength, geometry.view_deg)
    coefficients, residual, azimuths = _fit_in_turn(array, signal)
    bins = len(np.unique(np.floor(azimuths / _BIN_DEG)))
    if len(azimuths) < _LEAST_CELLS or bins < _LEAST_BINS:
        raise CalibrationError(
            f"{len(azimuths)} things in {bins} directions of {_BIN_DEG:.0f} degrees: at least "
            f"{_LEAST_CELLS} in {_LEAST_BINS} are needed; use a reflector"
        )
    level_db = float(10 * np.log10(np.median(still_power[columns]) / floor))
    calibration = _accept(coefficients, 0.0, residual, "clutter")
    return Measured(calibration, count, len(azimuths), level_db)


def _create_processor(geometry: RadarGeometry) -> RadarProcessor:
    if geometry.tx_m is None or geometry.rx_m is None:
        raise CalibrationError("radar.json has no antennas")
    return RadarProcessor(replace(geometry, calibration=None))


def _compute_spectra(processor: RadarProcessor, iq: Samples) -> Complex64:
    step = find_step(iq, processor.geometry.iq_order)
    if step is not None:
        raise CalibrationError(f"misaligned capture: a step before sample {step} of every chirp")
    return processor.spectra(iq)


def _reject_motion(power: npt.NDArray[np.float32], what: str) -> None:
    """Reject powers over Doppler [doppler] that are not strongest at zero."""
    fastest = int(np.argmax(power))
    if min(fastest, len(power) - fastest) > 1:
        raise CalibrationError(
            f"{what}: the strongest signal is not at zero speed: something moves"
        )


def _invert(waves: Complex128) -> tuple[Complex128, float]:
    """Return coefficients that make waves [n, tx, rx] equal over the antennas; spread, deg."""
    unit = waves / np.sqrt(np.mean(np.abs(waves) ** 2, axis=(1, 2), keepdims=True))
    mean = unit[0]
    for _ in range(4):
        turn = np.sum(unit * mean.conj(), axis=(1, 2), keepdims=True)
        mean = np.mean(unit * np.abs(turn) / turn, axis=0)
    turn = np.sum(unit * mean.conj(), axis=(1, 2), keepdims=True)
    off = np.angle(unit * np.abs(turn) / turn * mean.conj())
    return _normalize(1 / mean), float(np.degrees(np.sqrt(np.mean(off**2))))


def _normalize(coefficients: Complex128) -> Complex128:
    turn = np.sum(coefficients / np.abs(coefficients))
    scale = np.sqrt(np.mean(np.abs(coefficients) ** 2))
    return np.asarray(coefficients / scale * np.conj(turn) / np.abs(turn))


def _fit_in_turn(array: AntennaArray, signal: Complex128) -> tuple[Complex128, float, Floats]:
    """Return coefficients [tx, rx], their residual (deg), azimuths (deg) of the used signals."""
    count, tx, rx = signal.shape
    flat = signal.reshape(count, tx * rx)
    coefficients = np.ones(tx * rx, np.complex128)
    spread, azimuths = 180.0, np.zeros(0)
    if not count:
        return coefficients.reshape(tx, rx), spread, azimuths
    for _ in range(_ROUNDS):
        turned = flat * coefficients
        _, start = array.coarse(turned[:, None])
        fitted, direction = array.climb(turned, start[:, 0])
        share = fitted / (tx * rx * np.sum(np.abs(turned) ** 2, axis=1))
        good = share >= min(_CLUTTER_SHARE, float(np.quantile(share, 0.5)))
        waves = (flat * array.steering(direction))[good].reshape(-1, tx, rx)
        found, spread = _invert(waves)
        coefficients = _remove_ramp(array, found.reshape(-1))
        azimuths = np.degrees(np.arctan2(direction[good, 1], direction[good, 0]))
    return coefficients.reshape(tx, rx), spread, azimuths


def _remove_ramp(array: AntennaArray, coefficients: Complex128) -> Complex128:
    """Return coefficients without the part that a direction explains as well."""
    back = coefficients[None].conj()
    _, start = array.coarse(back[:, None])
    _, direction = array.climb(back, start[:, 0])
    straight = np.array([[1.0, 0.0, 0.0]])
    ramp = array.steering(direction) * array.steering(straight).conj()
    return _normalize(coefficients * ramp[0].conj())


def _accept(
    coefficients: Complex128, bias_m: float, residual_deg: float, method: str
) -> PhaseCalibration:
    if residual_deg > LARGEST_RESIDUAL_DEG:
        raise CalibrationError(
            f"the phases vary by {residual_deg:.0f} degrees; at most "
            f"{LARGEST_RESIDUAL_DEG:.0f} are a calibration"
        )
    return PhaseCalibration(coefficients, bias_m, residual_deg, method)


def as_mapping(measured: Measured, geometry: RadarGeometry) -> dict[str, object]:
    """Return the sensor's ``antennas`` in a calibration file."""
    found = measured.calibration
    pairs = np.stack([found.coefficients.real, found.coefficients.imag], axis=-1)
    known = geometry.identity()
    identity = {key: value for key, value in known.items() if value is not None}
    rows: Sequence[Sequence[Sequence[float]]] = np.round(pairs, 5).tolist()
    return {
        **identity,
        "frequency_ghz": round(float(known["frequency_ghz"]), 4),
        "range_bias_m": round(found.range_bias_m, 4),
        "coefficients": rows,
        "residual_deg": round(found.residual_deg, 2),
        "method": found.method,
    }
