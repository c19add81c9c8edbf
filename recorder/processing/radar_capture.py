"""Finds captures that do not begin with a chirp.

If a capture is cut some packets too early or too late, each recorded chirp holds the end of one
chirp and the beginning of the next one.  The signal then has a step at the same sample of every
chirp, which no echo can cause: an echo changes alike at all samples.  The mean of a frame's chirps
is examined, in which the radar's own leakage and near, standing things remain, and little noise.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.processing.radar_spectra import to_pairs

_STEP: Final = 4.0  # a step's power against the median of all samples' changes
_SECOND: Final = 2.0  # and against the largest change elsewhere
_EDGE: Final = 4  # samples at a chirp's ends: filters settle there


def find_step(iq: npt.NDArray[np.int16], order: str | None) -> int | None:
    """The sample of a chirp at which every chirp has a step; None: the capture is aligned.

    Args:
        iq: int16 [chirps, tx, rx, values], as recorded.
        order: order of the values; None where samples are real.
    """
    chirps, values = iq.shape[0], iq.shape[-1]
    mean = iq.reshape(chirps, -1).mean(axis=0, dtype=np.float32)
    if order is None:
        samples = mean.reshape(-1, values)
    else:
        samples = to_pairs(mean, order).view(np.complex64).reshape(-1, values // 2)
    if samples.shape[1] < 4 * _EDGE:
        return None
    power = np.mean(np.abs(np.diff(samples)) ** 2, axis=0)[_EDGE:-_EDGE]
    at = int(np.argmax(power))
    elsewhere = np.delete(power, slice(max(0, at - 2), at + 3))
    highest = max(_STEP * float(np.median(power)), _SECOND * float(elsewhere.max(initial=0.0)))
    return at + _EDGE + 1 if power[at] > highest else None
