"""An oracle for radar recordings: cells and angles of IQ by plain Fourier transforms.

Uses what is in radar.json and nothing of `drivers.sim`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Complex = npt.NDArray[np.complex128]


def samples_of(iq: npt.NDArray[np.int16], described: Mapping[str, Any]) -> Complex:
    """Samples [chirps, tx, rx, n], complex also where the device's are real."""
    values = iq.astype(np.float64)
    if described["iq_order"] is None:
        return values.astype(np.complex128)
    groups = values.reshape(*values.shape[:-1], -1, 4)
    first, second = (groups[..., a : a + 2].reshape(*values.shape[:-1], -1) for a in (0, 2))
    return first + 1j * second if described["iq_order"] == "iiqq" else second + 1j * first


@dataclass
class Spectrum:
    """Range-Doppler spectrum of a frame.

    Attributes:
        cells: [speeds, tx, rx, ranges], speed 0 in row 0.
        power: [speeds, ranges], mean over the antennas.
        described: radar.json.
    """

    cells: Complex
    power: Floats
    described: Mapping[str, Any]

    @classmethod
    def of(cls, iq: npt.NDArray[np.int16], described: Mapping[str, Any]) -> Spectrum:
        cube = samples_of(iq, described)
        loops, samples = cube.shape[0], cube.shape[3]
        window = np.hanning(loops + 2)[1:-1, None, None, None] * np.hanning(samples + 2)[1:-1]
        cells = np.fft.fft2(cube * window, axes=(0, 3))
        if described["iq_order"] is None:
            cells = cells[..., : samples // 2]
        return cls(cells, (np.abs(cells) ** 2).mean(axis=(1, 2)), described)

    def place(self, range_m: float, speed_m_s: float) -> tuple[float, float]:
        """Row and column, not rounded, of a range and a radial speed (which goes round)."""
        row = speed_m_s / self.described["doppler_resolution"] % len(self.power)
        return row, range_m / self.described["range_resolution"]

    def peak_near(self, row: float, column: float, reach: int) -> tuple[float, float, float]:
        """The strongest cell around a place: how far off it is in rows and columns, its power."""
        best = (0.0, 0.0, -1.0)
        for i in range(round(row) - reach, round(row) + reach + 1):
            for j in range(round(column) - reach, round(column) + reach + 1):
                if 0 <= j < self.power.shape[1]:
                    power = float(self.power[i % len(self.power), j])
                    best = max(best, (i - row, j - column, power), key=lambda b: b[2])
        return best

    def direction(self, row: int, column: int, speed_m_s: float) -> tuple[float, float]:
        """Azimuth (to the left) and elevation in rad of what is in a cell.

        `speed_m_s` is needed unfolded: by the time of its chirp, each transmitter sees the target
        further on.
        """
        d = self.described
        tx, rx = (np.array(d["antennas"][name]) for name in ("tx_m", "rx_m"))
        wave = d["wavelength"]
        late_s = np.arange(len(tx)) * d["chirp_time"] * 1e-6 / len(tx)
        turns = 2 * speed_m_s * late_s / wave + np.array(d["antennas"]["tx_turns"])
        values = (
            self.cells[row % len(self.power), :, :, column] * np.exp(-2j * np.pi * turns)[:, None]
        )
        places = (tx[:, None] + rx[None])[..., 1:] / wave  # y and z of the virtual antennas
        raised = np.ptp(places[..., 1]) > 0
        azimuth = np.deg2rad(np.arange(-75, 75.1, 0.5))
        elevation = np.deg2rad(np.arange(-30, 30.1, 0.5)) if raised else np.zeros(1)
        y = np.sin(azimuth)[:, None] * np.cos(elevation)[None]
        z = np.broadcast_to(np.sin(elevation), y.shape)
        # The way to an antenna on the target's side is shorter.
        steering = np.exp(
            2j * np.pi * (y[..., None, None] * places[..., 0] + z[..., None, None] * places[..., 1])
        )
        spectrum = np.abs((steering * values).sum(axis=(2, 3)))
        a, e = np.unravel_index(int(spectrum.argmax()), spectrum.shape)
        return float(azimuth[a]), float(elevation[e])
