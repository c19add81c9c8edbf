"""Contents of `radar.json`: chirps, antennas and their calibration of a radar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.perception.radar.spectra import ORDERS

Floats = npt.NDArray[np.float64]

SPEED_OF_LIGHT = 299_792_458.0  # m/s
WIDEST_VIEW_DEG: Final = (90.0, 44.4)
"""Field of view, deg, for files without one."""
_RESIDUAL_DEG: Final = 5.0  # of a calibration that does not name its residual


@dataclass(frozen=True)
class PhaseCalibration:
    """Calibration of a device's antennas.

    Attributes:
        coefficients: c16 [tx, rx], by which the antennas' signals are multiplied, in the order of
            the chirps and receivers.
        range_bias_m: subtracted from ranges.
        residual_deg: standard deviation of the calibrated phases' errors.
        method: how it was measured.
    """

    coefficients: npt.NDArray[np.complex128]
    range_bias_m: float = 0.0
    residual_deg: float = _RESIDUAL_DEG
    method: str = ""

    @classmethod
    def of_mapping(cls, values: Mapping[str, Any], tx: int, rx: int) -> PhaseCalibration:
        """Parse ``antennas.calibration``: ``coefficients`` [tx][rx][re, im], and the attributes.

        Raises:
            KeyError: no coefficients.
            ValueError: a value is invalid; TypeError: a value has the wrong type.
        """
        pairs = np.array(values["coefficients"], np.float64)
        if pairs.shape != (tx, rx, 2):
            raise ValueError(f"coefficients have the shape {pairs.shape}, not {(tx, rx, 2)}")
        factors = pairs[..., 0] + 1j * pairs[..., 1]
        bias = float(values.get("range_bias_m") or 0.0)
        residual = values.get("residual_deg")
        residual_deg = _RESIDUAL_DEG if residual is None else float(residual)
        if not (np.isfinite(factors) & (abs(factors) > 0)).all() or not np.isfinite(bias):
            raise ValueError("a coefficient is zero or no number")
        if not 0 <= residual_deg <= 180:
            raise ValueError(f"residual_deg {residual_deg:g} is no angle up to 180")
        factors = factors / np.sqrt(np.mean(abs(factors) ** 2))
        return cls(factors, bias, residual_deg, str(values.get("method", "")))


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
        view_deg: largest azimuth and elevation to each side of straight ahead.
        calibration: of the antennas; None: not calibrated.
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
    view_deg: tuple[float, float] = WIDEST_VIEW_DEG
    calibration: PhaseCalibration | None = None

    @classmethod
    def of_metadata(
        cls, text: str, where: str, raw_shape: tuple[int, ...] | None = None
    ) -> RadarGeometry:
        """Parse the text of ``radar.json``.

        Args:
            text: JSON.
            where: path of the file, for messages.
            raw_shape: shape of the channel ``iq``, which the file's must equal, if it has one.

        Raises:
            FormatError: a value is missing or invalid, or the file does not fit the samples.
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
            view = tuple(map(float, antennas.get("view_deg") or WIDEST_VIEW_DEG))
            if len(view) != 2 or not all(0 < angle <= 90 for angle in view):
                raise ValueError(f"view_deg {list(view)} has no two angles up to 90")
            calibration = None
            if antennas.get("calibration"):
                calibration = PhaseCalibration.of_mapping(antennas["calibration"], raw[1], raw[2])
            recorded = (*raw[:3], samples if order is None else 2 * samples)
            if raw_shape is not None and recorded != tuple(raw_shape):
                text = f"has samples {list(recorded)}, the channel iq has {list(raw_shape)}"
                raise FormatError(f"{where}: {text}")
            return cls(
                (raw[0], raw[1], raw[2], samples), order, float(values["range_resolution"]),
                doppler, wavelength, chirp_s, frame_s, coupling, tx, rx,
                turns.reshape(raw[1]), dict(values), (view[0], view[1]), calibration,
            )  # fmt: skip
        except KeyError as error:
            raise FormatError(f"{where}: lacks {error.args[0]}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise FormatError(f"{where}: is invalid: {error}") from None

    @property
    def factors(self) -> npt.NDArray[np.complex128]:
        """c16 [tx, rx], by which the antennas' signals are multiplied."""
        back = np.exp(-2j * np.pi * self.tx_turns)[:, None]
        measured = self.calibration
        one = np.ones((self.shape[1], self.shape[2]))
        return np.asarray(back * (one if measured is None else measured.coefficients))

    @property
    def late_s(self) -> Floats:
        """Time from the first transmitter's chirp to the chirp of each transmitter, f8 [tx], s."""
        return np.arange(self.shape[1]) * self.chirp_time / self.shape[1]

    @property
    def ranges(self) -> int:
        """Number of range cells: the number of samples, or half of it for real samples."""
        return self.shape[3] if self.iq_order is not None else self.shape[3] // 2

    @property
    def max_velocity(self) -> float:
        """Radial speed at which Doppler cells wrap around, m/s."""
        return self.doppler_resolution * self.shape[0] / 2

    def identity(self) -> dict[str, Any]:
        """Return the identity of the antennas: device, transmitters, centre frequency (GHz).

        A calibration of the antennas is for one identity.
        """
        known = self.document
        used = known.get("transmitters") or list(range(self.shape[1]))
        return {
            "device": known.get("device"),
            "transmitters": used,
            "frequency_ghz": SPEED_OF_LIGHT / self.wavelength * 1e-9,
        }
