"""Frames of several sessions as one sequence."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from recorder.api.frame import Frame, FramePlan
from recorder.api.session import Session

_MOST_OPEN = 8
"""Sessions that `Frames` keeps open."""


class Frames:
    """The frames of several sessions as one sequence, for training; made by `frames`.

    It is a dataset as PyTorch's ``DataLoader`` takes it (map-style), and needs no torch.  It can be
    pickled; each process opens its own files, and at most eight sessions at a time.

    Attributes:
        paths: folders of the sessions.
        by: name of the stream whose samples are the frames.
    """

    def __init__(self, paths: Iterable[str | Path], by: str, others: Mapping[str, float]) -> None:
        """Count the frames of the sessions; see `frames`."""
        self.paths = tuple(Path(path).absolute() for path in paths)
        self.by, self._others = by, dict(others)
        self._plans: OrderedDict[int, FramePlan] = OrderedDict()
        counts = (len(self._plan(number)) for number in range(len(self.paths)))
        self._ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Frame:
        """Make one frame; nothing is decoded yet.

        Raises:
            IndexError: there is no such frame.
        """
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"frame {number} of {len(self)}")
        number %= len(self)
        which = bisect_right(self._ends, number)
        return self._plan(which).frame(number - (self._ends[which - 1] if which else 0))

    def __iter__(self) -> Iterator[Frame]:
        """Iterate over the frames of one session after the other."""
        return (self[index] for index in range(len(self)))

    def _plan(self, number: int) -> FramePlan:
        plan = self._plans.pop(number, None)
        if plan is None:
            plan = FramePlan(Session(self.paths[number]), self.by, self._others)
        self._plans[number] = plan
        if len(self._plans) > _MOST_OPEN:  # a session closes with the last frame of it
            self._plans.popitem(last=False)
        return plan

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": OrderedDict()}

    def __repr__(self) -> str:
        return f"<Frames: {len(self)} of {self.by!r} in {len(self.paths)} sessions>"


def frames(paths: Iterable[str | Path] | str | Path, by: str, /, **others: float) -> Frames:
    """Make one sequence of the frames of several sessions, with ``len`` and an index.

    ::

        dataset = recorder.frames(recorder_paths, "camera", lidar=0.05)
        dataset[0].camera.rgb

    Args:
        paths: folders of the sessions, or one folder.
        by: name of the stream whose samples are the frames.
        others: seconds by name of stream, as for `Session.synchronized`.

    Raises:
        SessionError: a session cannot be opened, or a stream has no times.
        UnknownNameError: a session has no such stream.
        ValueError: a number of seconds is negative or not finite.
    """
    return Frames([paths] if isinstance(paths, str | Path) else paths, by, others)
