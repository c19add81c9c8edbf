"""The ride on a rough road: pitch, roll and heave of the vehicle along its path.

Each is a sum of waves in the path's parameter: slopes of some 50 m, and bumps of 3 to 13 m.  At 6
to 9 m/s, pitch and roll change by 0.05 to 0.2 rad/s; a standing vehicle does not move.  The ground
itself stays the plane z = 0: slopes turn the vehicle, they do not lift the road.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.world.noise import uniform

Floats = npt.NDArray[np.float64]

PITCH, ROLL, HEAVE = range(3)
_LENGTHS_M: Final = np.array([61.0, 37.0, 12.7, 7.1, 3.3])
_AMPLITUDES: Final = np.array(
    [
        [0.030, 0.018, 0.016, 0.012, 0.006],  # pitch, rad
        [0.025, 0.020, 0.016, 0.011, 0.004],  # roll, rad
        [0.000, 0.000, 0.008, 0.006, 0.003],  # heave, m
    ]
)


class Ride:
    """Pitch, roll and heave as functions of the path's parameter.

    >>> value, first, second = Ride(seed=0).at(np.array([12.0]))
    >>> value[PITCH], value[ROLL], value[HEAVE]        # rad, rad, m

    Args:
        seed: of the waves' phases.
    """

    def __init__(self, seed: int = 0) -> None:
        self._phases = math.tau * uniform(seed, "ride", 0, _AMPLITUDES.size).reshape(
            _AMPLITUDES.shape
        )

    def at(self, u: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the values at parameters `u` [n] and their two derivatives, each f8 [3, n]."""
        waves = math.tau / _LENGTHS_M[:, None]
        angle = waves * u + self._phases[:, :, None]
        sine = _AMPLITUDES[:, :, None] * np.sin(angle)
        cosine = _AMPLITUDES[:, :, None] * np.cos(angle)
        return sine.sum(axis=1), (waves * cosine).sum(axis=1), (-waves * waves * sine).sum(axis=1)
