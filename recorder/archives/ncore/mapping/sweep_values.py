"""Values of an Ouster's pixels besides range and reflectivity: near infrared, signal, others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.perception.lidar.lidar import Rays
from recorder.perception.lidar.points import RETURNS
from recorder.perception.sensor_files import lidar_returns
from recorder.session.stream import Stream

NEAR_IR, SIGNAL = "nir", "signal"
"""Channels of an Ouster's ambient light, and of the photons of its returns."""
AMBIENT = "ambient"
"""Name of the ambient light of returns; that of all pixels is ``near_ir``, as generic data."""


@dataclass(frozen=True)
class SweepValues:
    """Channels of an Ouster's sweeps besides range and reflectivity.

    Attributes:
        by_return: channels by name, one for each return: stored as values of the returns.
        per_pixel: channel by name: stored as generic data of a frame, a value per pixel.
    """

    by_return: Mapping[str, Sequence[str]]
    per_pixel: Mapping[str, str]

    @property
    def channels(self) -> list[str]:
        """All channels, once."""
        names = (name for names in self.by_return.values() for name in names)
        return list(dict.fromkeys([*names, *self.per_pixel.values()]))

    def per_return(
        self, data: Mapping[str, npt.NDArray[Any]], rays: Rays
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Return the values of the returns of a sweep by name, f4 as `Rays.distance_m`.

        Args:
            data: values of `channels`, [beams, columns].
            rays: the sweep's rays.
        """
        absent, found = np.isnan(rays.distance_m), {}
        for name, channels in self.by_return.items():
            values = np.empty(absent.shape, np.float32)
            for number, channel in enumerate(channels):
                pixels = data[channel].reshape(-1)
                values[number, : len(pixels)] = pixels
                values[number, len(pixels) :] = pixels[rays.beam_of_ray]
            values[absent] = np.nan
            found[name] = values
        return found


def find_values(stream: Stream) -> SweepValues:
    """Find what an Ouster's stream has for each pixel besides range and reflectivity."""
    meta, returns = stream.meta, lidar_returns(stream)
    known = {name for names in RETURNS for name in names}
    shape = list(meta["rng"]["shape"])
    others = [n for n, entry in meta.items() if n not in known and list(entry["shape"]) == shape]
    others = [name for name in others if "all zero" not in str(meta[name].get("desc", ""))]
    by_return: dict[str, Sequence[str]] = {}
    if NEAR_IR in others:  # the ambient light is that of the pixel, for all of its returns
        by_return[AMBIENT] = [NEAR_IR] * len(returns)
    signals = [SIGNAL, f"{SIGNAL}2"][: len(returns)]
    if set(signals) <= set(others):
        by_return[SIGNAL] = signals
        others = [name for name in others if name not in signals]
    per_pixel = {"near_ir" if name == NEAR_IR else name: name for name in others}
    return SweepValues(by_return, per_pixel)
