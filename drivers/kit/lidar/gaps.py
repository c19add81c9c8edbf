"""Missing columns by gaps of the azimuth, for lidars whose packets have no numbers.

::

    gaps = AzimuthGaps(turn=36000, step=19.9, column_ns=55296.0, per_packet=24)
    missing = gaps.find(columns)
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.clock import DRIFT
from drivers.kit.lidar.columns import Columns

_NEAR: Final = 3.0
"""Columns by which the edges of the field of view vary from turn to turn."""
_UNEVEN: Final = 0.05
"""Share by which the motor's speed may differ from the set one."""
_STEP: Final = 0.75
"""Turns from which on a step of the device's clock could hide a loss, or look like one."""

Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class AzimuthGaps:
    """Finder of missing columns.

    A gap of the azimuth is checked against the time of the device, which also tells whole turns.
    Where both disagree, the device's clock has stepped: then the host's time tells whole turns.  A
    part of the turn that the device is set to leave out is no gap.

    Args:
        turn: azimuths of a turn.
        step: azimuths from column to column, at the set speed.
        column_ns: interval of columns.
        per_packet: columns of a packet.
    """

    def __init__(self, turn: int, step: float, column_ns: float, per_packet: int) -> None:
        self._turn, self._step, self._column_ns = turn, step, column_ns
        self._per_packet, self._per_turn = per_packet, turn / step
        self._views: list[tuple[int, int]] = []  # parts left out: last and next azimuth
        self._last: tuple[int, int, int] | None = None  # of the last column
        self._least_delay_ns: float = np.inf  # from a column's time to its arrival, two clocks

    def find(self, columns: Columns) -> Counts:
        """Return the number of columns that are missing before each one, i8 [columns].

        Args:
            columns: of whole packets, in order, with their arrival.
        """
        assert columns.host_ns is not None
        turn, step_ns = self._turn, self._column_ns
        azimuth, t_ns, host_ns = columns.azimuth.astype(np.int64), columns.t_ns, columns.host_ns
        first = self._last or (
            int(azimuth[0]) - round(self._step),
            int(t_ns[0]) - round(step_ns),
            int(host_ns[0]) - round(step_ns),
        )
        turned = (np.diff(azimuth, prepend=first[0]) % turn) / self._step
        passed = np.diff(t_ns, prepend=first[1]) / step_ns
        waited = np.diff(host_ns, prepend=first[2]) / step_ns
        allowed = np.maximum(2, _UNEVEN * turned)
        agrees = (passed > 0) & (np.abs(self._beyond_turns(passed - turned)) < allowed)
        # The clock may have stepped by whole turns.  A capture may have no stamps.
        doubtful = agrees & (waited != 0) & (passed - waited >= _STEP * self._per_turn)
        agrees &= ~self._find_steps(host_ns - t_ns, host_ns, agrees, doubtful)
        turns = np.maximum(np.rint((waited - turned) / self._per_turn), 0)
        by_host = np.rint(turned + turns * self._per_turn)
        missing = np.where(agrees, np.rint(passed), by_host).astype(np.int64) - 1
        self._last = int(azimuth[-1]), int(t_ns[-1]), int(host_ns[-1])
        for at in np.flatnonzero(missing > 1).tolist():
            edges = int(azimuth[at - 1]) if at else first[0], int(azimuth[at])
            if at % self._per_packet:  # inside a packet: nothing was lost
                self._learn_view(edges)
            if self._ends_view(edges):
                missing[at] -= round((edges[1] - edges[0]) % turn / self._step) - 1
        return np.maximum(missing, 0)

    def _find_steps(
        self, delay_ns: Counts, host_ns: Counts, agrees: Flags, doubtful: Flags
    ) -> Flags:
        """Return which doubtful columns follow a step of the clock, bool [columns].

        The others were held up by less than those before them: none comes before it was sent.
        """
        steps, begin = np.zeros(len(doubtful), np.bool_), 0
        least = self._least_delay_ns
        if self._last is not None:
            least += DRIFT * max(0, int(host_ns[0]) - self._last[2])
        for at in np.flatnonzero(doubtful | ~agrees).tolist():
            if begin < at:
                least = min(least, float(delay_ns[begin:at].min()))
            begin = at
            if doubtful[at]:
                steps[at] = least - delay_ns[at] > _STEP * self._per_turn * self._column_ns
            if steps[at] or not agrees[at]:
                least = np.inf
        self._least_delay_ns = min(least, float(delay_ns[begin:].min()))
        return steps

    def _beyond_turns(self, difference: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        half = self._per_turn / 2
        return np.asarray((difference + half) % self._per_turn - half)

    def _learn_view(self, edges: tuple[int, int]) -> None:
        if not self._ends_view(edges):
            self._views.append(edges)

    def _ends_view(self, edges: tuple[int, int]) -> bool:
        """Return whether a gap lies between two parts of the set field of view."""
        turn, near = self._turn, _NEAR * self._step
        return any(
            all(
                abs((edge - known + turn // 2) % turn - turn // 2) <= near
                for edge, known in zip(edges, view, strict=True)
            )
            for view in self._views
        )
