"""Assembly of columns to sweeps, with an account of missing columns and sweeps.

A sweep begins where the azimuth passes the cut.  ::

    assembly = SweepAssembly(turn=36000, cut=0, step=18.0)
    for sweep in assembly.take(columns, missing):
        data, beyond = fill_channels(sweep.parts, width=2040)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.columns import Columns

_BACK: Final = 4.0
"""Columns by which the azimuth of an uneven motor may go back at most."""
_MOST_TURNS: Final = 4


@dataclass(frozen=True, slots=True)
class Sweep:
    """One turn of a lidar, or of one of its mirrors through its field.

    Attributes:
        parts: its columns, in order of their firing.
        missing: columns that are missing between its begin and its end.
        lost_before: whole sweeps that are missing before it.
    """

    parts: Sequence[Columns]
    missing: int
    lost_before: int

    def join(self, name: str) -> npt.NDArray[Any]:
        """Return a field of `Columns` that has one value a column, of all parts."""
        return np.concatenate([getattr(part, name) for part in self.parts])

    def __len__(self) -> int:
        return sum(len(part.azimuth) for part in self.parts)


class SweepAssembly:
    """Assembler of columns, which come in order, to sweeps.

    The first sweep may begin behind the cut, and the last one end before it: what lies outside is
    not missing.  A lidar that does not turn ends a sweep after the columns of four turns.

    Args:
        turn: azimuths of a turn.
        cut: azimuth at which a sweep begins.
        step: azimuths from column to column, at the set speed.
        begins: azimuths at which the fields of mirrors begin, each a sweep; empty: the lidar turns.
        step_ns: time of a step, for mirrors.
    """

    def __init__(
        self, turn: int, cut: int, step: float, begins: Sequence[int] = (), step_ns: float = 0.0
    ) -> None:
        self._turn, self._cut, self._step = turn, cut, step
        self._most = round(_MOST_TURNS * turn / step)
        self._mirrors = _Mirrors(turn, step, begins, step_ns) if begins else None
        self._parts: list[Columns] = []
        self._count = 0  # columns in the parts
        self._missing = self._lost = 0
        self._last = 0  # azimuth of the last column, from the cut

    def take(self, columns: Columns, missing: npt.NDArray[np.int64]) -> Iterator[Sweep]:
        """Add columns; yield the sweeps that they end.

        Args:
            columns: further columns, in order.
            missing: i8 [columns], number of columns that are missing before each one.
        """
        if not len(columns.azimuth):
            return
        azimuth: npt.NDArray[np.int64] = columns.azimuth.astype(np.int64)
        if self._mirrors is not None:
            yield from self._take_mirrors(columns, azimuth, missing)
            return
        past = (azimuth - self._cut) % self._turn
        previous = np.append([self._last if self._parts else past[0]], past[:-1])
        wraps = past - previous < -_BACK * self._step
        if not self._parts:
            wraps[0], missing = False, np.append([0], missing[1:])
        begin = 0
        for at in np.flatnonzero(wraps | (missing > 0)).tolist():
            self._add(columns, begin, at)
            begin = at
            gap, before, behind = int(missing[at]), int(previous[at]), int(past[at])
            if not gap:
                yield from self.finish()
                continue
            turns = round((before + (gap + 1) * self._step - behind) / self._turn)
            if turns < 1:
                self._missing += gap
                continue
            tail = min(gap, int((self._turn - 1 - before) / self._step))
            head = min(gap - tail, int(behind / self._step))
            self._missing += tail if turns > 1 else gap - head
            yield from self.finish()
            self._missing, self._lost = head, turns - 1
        self._add(columns, begin, len(past))
        self._last = int(past[-1])
        if self._count > self._most:
            yield from self.finish()

    def _take_mirrors(
        self, columns: Columns, azimuth: npt.NDArray[np.int64], missing: npt.NDArray[np.int64]
    ) -> Iterator[Sweep]:
        """Add columns of mirrors, each of which fires in a part of its field alone."""
        assert self._mirrors is not None
        if not self._parts:
            missing = np.append([0], missing[1:])
        passed, past = self._mirrors.find_passed(columns, azimuth, missing)
        begin = 0
        for at in np.flatnonzero((passed > 0) | (missing > 0)).tolist():
            self._add(columns, begin, at)
            begin = at
            gap, before = int(missing[at]), int(past[at])
            if not passed[at]:
                self._missing += gap
                continue
            lost = int(passed[at]) - 1
            tail, head = self._mirrors.split_gap(gap, before, lost)
            self._missing += tail
            yield from self.finish()
            self._missing, self._lost = head, lost
        self._add(columns, begin, len(azimuth))
        if self._count > self._most:
            yield from self.finish()

    def finish(self) -> Iterator[Sweep]:
        """Yield the present sweep, which may not be whole."""
        if self._parts:
            yield Sweep(self._parts, self._missing, self._lost)
        self._parts, self._missing, self._lost, self._count = [], 0, 0, 0

    def _add(self, columns: Columns, begin: int, end: int) -> None:
        if begin < end:
            self._parts.append(columns.part(begin, end))
            self._count += end - begin


class _Mirrors:
    """Fields of turning mirrors that columns pass, and where in them the lidar fires.

    Args:
        turn, step, begins, step_ns: see `SweepAssembly`.
    """

    def __init__(self, turn: int, step: float, begins: Sequence[int], step_ns: float) -> None:
        self._turn, self._step, self._ns = turn, step, step_ns / step
        self._begins = np.array(begins, np.int64)[:, None]
        self._last: tuple[int, int, int] | None = None  # azimuth, place in its field, device time
        self._fires = turn // len(begins), 0  # first and last place in a field

    def find_passed(
        self,
        columns: Columns,
        azimuth: npt.NDArray[np.int64],
        missing: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the fields that begin between each column and the one before it.

        Whole turns follow from the device's time, as far as columns enough are missing.

        Args:
            columns: in order.
            azimuth: of the columns.
            missing: i8 [columns], columns that are missing before each one.

        Returns:
            i8 [columns]; and the place of the column before each in its field, i8 [columns + 1].
        """
        places = (azimuth - self._begins) % self._turn
        past = places.min(axis=0)
        last = self._last or (int(azimuth[0]), int(past[0]), int(columns.t_ns[0]))
        self._fires = min(self._fires[0], int(past.min())), max(self._fires[1], int(past.max()))
        turned = np.diff(azimuth, prepend=last[0]) % self._turn
        turned[turned > self._turn - _BACK * self._step] = 0
        since_ns = np.diff(columns.t_ns, prepend=last[2])
        most = missing // (self._fired * len(self._begins)) + 1
        turns = np.clip(np.rint((since_ns / self._ns - turned) / self._turn), 0, most)
        turned = turned + np.where(missing > 0, turns * self._turn, 0).astype(np.int64)
        before = np.append(last[1], past)
        width = self._turn / len(self._begins)
        passed = np.rint((before[:-1] + turned - past) / width).astype(np.int64)
        self._last = int(azimuth[-1]), int(past[-1]), int(columns.t_ns[-1])
        return passed, before

    @property
    def _fired(self) -> int:
        """Columns of a field in which the lidar fires, as seen."""
        return max(1, round((self._fires[1] - self._fires[0]) / self._step) + 1)

    def split_gap(self, gap: int, before: int, lost: int) -> tuple[int, int]:
        """Return how many missing columns belong to the sweep before, and to the one behind.

        Args:
            gap: missing columns.
            before: place of the last column in its field.
            lost: whole sweeps that are missing, too.
        """
        tail = min(gap, round((self._fires[1] - before) / self._step))
        return tail, max(0, gap - tail - lost * self._fired)


def fill_channels(parts: Sequence[Columns], width: int) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Return a sweep's channels [1, ...] of a fixed width, and the columns beyond the width.

    Columns are in order of their firing, staggered; the rest of the width is zero, with a time of
    zero in `t_col`.

    Args:
        parts: the sweep's columns.
        width: of the channels.
    """
    counts = [len(part.azimuth) for part in parts]
    beyond = max(0, sum(counts) - width)
    first, ends = parts[0], np.cumsum(counts).tolist()

    def fill(name: str, dtype: str) -> npt.NDArray[Any]:
        filled = np.zeros((1, width), dtype)
        values = np.concatenate([getattr(part, name) for part in parts])[:width]
        filled[0, : len(values)] = values
        return filled

    def fill_image(name: str, number: int, dtype: str) -> npt.NDArray[Any]:
        filled = np.empty((1, getattr(first, name).shape[2], width), dtype)
        filled[0, :, min(width, ends[-1]) :] = 0
        for part, end, count in zip(parts, ends, counts, strict=True):
            begin, taken = end - count, min(width, end) - (end - count)
            if taken > 0:  # OpenCV transposes in a quarter of numpy's time
                values = np.ascontiguousarray(getattr(part, name)[number, :taken], dtype)
                cv2.transpose(values, dst=filled[0, :, begin : begin + taken])
        return filled

    images = {"rng": ("ranges", "<u2"), "rfl": ("reflectivity", "u1")}
    if first.confidence is not None:
        images["conf"] = ("confidence", "u1")
    data = {
        f"{name}{number + 1 if number else ''}": fill_image(field, number, dtype)
        for name, (field, dtype) in images.items()
        for number in range(len(first.ranges))
    }
    if first.state is not None:
        data["state"] = fill("state", "u1")
    data["azimuth"] = fill("azimuth", "<u4")
    data["t_col"] = fill("t_ns", "<u8")
    return data, beyond
