"""Resolution of radial speeds by the change of the range from frame to frame.

A speed that is off by twice ``max_velocity`` changes the range between two frames by
``2 max_velocity T`` more or less: 1 m for a frame period of 0.1 s and 5 m/s, which is many range
cells.  A detection is therefore followed into the frames around its own: the multiple for which
the most frames have a matching detection is the right one, if no other multiple has nearly as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.perception.radar.geometry import Floats, RadarGeometry
from recorder.perception.radar.radar import Detections, SpeedMethod

REACH: Final = 2
"""Number of frames before and after a frame that are searched."""
FASTEST_M_S: Final = 70.0
"""Largest speed that is considered, beside the unambiguous ones."""

_LONGEST_S: Final = 0.5
_CELLS: Final = 0.6  # error of a range, in cells
_JERK_M_S: Final = 0.5  # error of the mean speed between two frames
_FASTER_M_S2: Final = 8.0  # change of a target's radial speed
_LOUDER_DB: Final = 10.0
_ASIDE: Final = 0.9  # cosine of the angle between the directions
_SEPARATE: Final = 3.0  # tolerances that two multiples must be apart
_LEAD: Final = 2  # frames by which the best multiple must lead


def resolve_by_range_rate(
    found: Detections, others: Sequence[tuple[float, Detections]], geometry: RadarGeometry
) -> Detections:
    """Return the detections of a frame, with ambiguous ones resolved by the frames around it.

    Args:
        found: the frame's detections.
        others: of the frames around, the time after `found` (s, negative before) and detections.
        geometry: of the radar.
    """
    open_ = found.method == SpeedMethod.AMBIGUOUS
    if not len(found) or not open_.any():
        return found
    most = max(1, int(FASTEST_M_S / (2 * geometry.max_velocity)))
    votes = np.zeros((len(found), 2 * most + 1), np.int64)
    usable = 0
    for dt_s, other in others:
        if _compute_tolerance_m(dt_s, geometry) is not None:
            usable += 1
            votes += _count_votes(found, other, dt_s, most, geometry)
    turns = np.arange(-most, most + 1)
    principal = found.velocity_m_s - found.turns * 2.0 * geometry.max_velocity
    speeds = principal[:, None] + turns * 2 * geometry.max_velocity
    votes[(np.abs(speeds) > FASTEST_M_S) & (turns != 0)] = 0
    best = np.argmax(votes, axis=1)
    every = np.arange(len(found))
    first = votes[every, best]
    votes[every, best] = 0
    clear = open_ & (first >= max(_LEAD, usable - 1)) & (first >= votes.max(axis=1) + _LEAD)
    return found.turned(clear, turns[best].astype(np.int16), SpeedMethod.RANGE_RATE, geometry)


def _compute_tolerance_m(dt_s: float, geometry: RadarGeometry) -> float | None:
    """Return the largest error of a range predicted so far ahead, in m.

    Return None if the time is too long, or the multiples are not far enough apart.
    """
    tolerance = _CELLS * geometry.range_resolution + _JERK_M_S * abs(dt_s)
    apart = 2 * geometry.max_velocity * abs(dt_s)
    return None if abs(dt_s) > _LONGEST_S or apart < _SEPARATE * tolerance else tolerance


def _count_votes(
    found: Detections, other: Detections, dt_s: float, most: int, geometry: RadarGeometry
) -> npt.NDArray[np.bool_]:
    """Return whether another frame has a matching detection, bool [n, multiple]."""
    period = 2 * geometry.max_velocity
    votes = np.zeros((len(found), 2 * most + 1), np.bool_)
    tolerance = _compute_tolerance_m(dt_s, geometry) or 0.0
    step = other.velocity_m_s[None].astype(np.float64) - found.velocity_m_s[:, None]
    step -= period * np.rint(step / period)
    alike = np.abs(step) <= geometry.doppler_resolution + _FASTER_M_S2 * abs(dt_s)
    alike &= np.abs(other.power_db[None] - found.power_db[:, None]) <= _LOUDER_DB
    principal = found.velocity_m_s - found.turns * period
    moved: Floats = (
        _remove_coupling(other, geometry)[None] - _remove_coupling(found, geometry)[:, None]
    )
    # The range rate exceeds the principal speed by about a multiple of the period.
    excess = moved / dt_s - (principal[:, None] + step / 2)
    turns = np.rint(excess / period).astype(np.int64)
    off = np.abs(excess - turns * period) * abs(dt_s)
    alike &= (off <= tolerance) & (np.abs(turns) <= most)
    one, two = np.nonzero(alike)
    turn = turns[one, two]
    # A match must also have nearly the same direction, each for its own multiple.
    kinds = found.fit_db.shape[1]
    same = np.rint((principal[one] + step[one, two] - other.velocity_m_s[two]) / period)
    theirs = (turn + other.turns[two] + same.astype(np.int64)) % kinds
    ahead = np.einsum(
        "nk,nk->n", found.directions[one, turn % kinds], other.directions[two, theirs]
    )
    near = ahead >= _ASIDE
    votes[one[near], turn[near] + most] = True
    return votes


def _remove_coupling(found: Detections, geometry: RadarGeometry) -> Floats:
    """Return ranges that do not depend on the multiple, f8 [n], m."""
    turned = found.turns * 2 * geometry.max_velocity
    return np.asarray(found.range_m + turned * geometry.coupling_s, np.float64)
