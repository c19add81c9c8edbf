"""Traffic light faces of the frames, from the labels of cameras (``_labels``, docs/labels.md).

A frame gets each face from the label nearest to the frame's stamp, in any camera.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from recorder.archives.l5kit.dataset import FACE, NO_FACES, Rows
from recorder.common.errors import FormatError
from recorder.perception.labels import LabelFile, text

CLASS: Final = "traffic_light_face"
"""Class of the labels that are faces."""
STATES: Final = ("active", "inactive", "unknown")
"""Names of the states, in the order of ``traffic_light_face_status``."""
REACH_NS: Final = 50_000_000
"""Largest time between a frame and a label of one of its faces."""
NAME_LENGTH: Final = 16


class TrafficLightFaces:
    """Reader of the faces of label files that are ordered by time.

    ::

        faces = TrafficLightFaces(files)
        rows = faces.at(t_ns)        # FACE [n], by name; call with rising times

    Attributes:
        cut: whether a name was longer than the format allows.
    """

    def __init__(self, files: Sequence[LabelFile]) -> None:
        labels = (_faces(file) for file in files)
        self._labels = heapq.merge(*labels, key=lambda label: label[0])
        self._next = next(self._labels, None)
        self._window: deque[tuple[int, str, Any]] = deque()
        self.cut = False

    def at(self, t_ns: int) -> Rows:
        """Return the faces at a time, `FACE` [n], ordered by name; call with rising times.

        Raises:
            FormatError: a label is invalid; the message names file, line and key.
        """
        while self._next is not None and self._next[0] <= t_ns + REACH_NS:
            self._window.append(self._next)
            self._next = next(self._labels, None)
        while self._window and self._window[0][0] < t_ns - REACH_NS:
            self._window.popleft()
        best: dict[str, tuple[int, Any]] = {}
        for at_ns, name, row in self._window:
            off_ns = abs(at_ns - t_ns)
            if name not in best or off_ns < best[name][0]:
                best[name] = off_ns, row
        if not best:
            return NO_FACES
        rows = np.concatenate([best[name][1] for name in sorted(best)])
        longest = max(max(map(len, name.split("\0"))) for name in best)
        self.cut |= longest > NAME_LENGTH
        return rows


def _faces(file: LabelFile) -> Iterator[tuple[int, str, Any]]:
    """Yield time, names and row of each face of a file."""
    last: int | None = None
    for where, label in file.lines():
        if label.get("class") != CLASS:
            continue
        if last is not None and label["t_ns"] < last:
            raise FormatError(f"{where}: t_ns: the lines are not in order of time")
        last = label["t_ns"]
        face = text(label, "track", where)
        light = face if "traffic_light" not in label else text(label, "traffic_light", where)
        state = label.get("state")
        if state not in STATES:
            raise FormatError(f"{where}: state: needs {', '.join(STATES)}, not {state!r:.60}")
        score = label.get("score", 1.0)
        row = np.zeros(1, FACE)
        row["face_id"], row["traffic_light_id"] = face[:NAME_LENGTH], light[:NAME_LENGTH]
        status = np.zeros(len(STATES), np.float32)
        status[STATES.index("unknown")] = 1 - score
        status[STATES.index(state)] += score
        row["traffic_light_face_status"] = status
        yield label["t_ns"], f"{face}\0{light}", row
