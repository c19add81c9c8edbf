"""List of earlier sessions for the page: names and figures, no paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recorder.session.discovery import find_sessions
from recorder.session.layout import RECORDING
from recorder.session.summary import brief
from recorder.viewers.live.access import strip_paths
from recorder.viewers.live.backend import Note

MOST = 200
"""Largest number of sessions in the list: the newest ones."""


class Recordings:
    """Lister of the sessions below a root, without those that are being recorded.

    A session that is closed is read once.

    Args:
        root: the folder of sessions.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, tuple[int, dict[str, Any]]] = {}

    def note(self) -> Note:
        """Read the disk and return the note ``sessions``, the newest first."""
        ages = {path: _changed_ns(path) for path in find_sessions(self._root)}
        paths = sorted(ages, key=lambda path: ages[path], reverse=True)[:MOST]
        known, self._known = self._known, {}
        for path in paths:
            changed_ns, line = known.get(path, (-1, {}))
            if changed_ns != ages[path] or line["state"] == RECORDING:
                line = _line(path)
            self._known[path] = ages[path], line
        lines = [line for _, line in self._known.values() if not line["live"]]
        lines.sort(key=lambda line: int(line["start_ns"] or 0), reverse=True)
        return {"type": "sessions", "sessions": lines}


def _line(path: Path) -> dict[str, Any]:
    found = brief(path)
    start_ns, duration_s = found["start_ns"], found["duration_s"]
    end_ns = None
    if start_ns is not None and duration_s is not None:
        end_ns = start_ns + round(duration_s * 1e9)
    return {
        **{key: found[key] for key in ("name", "state", "live")},
        "start_ns": None if start_ns is None else str(start_ns),
        "end_ns": None if end_ns is None else str(end_ns),
        **{key: found[key] for key in ("duration_s", "bytes", "streams", "lost")},
        "unknown_losses": found["lost_intervals"],
        **{key: found[key] for key in ("incomplete", "verdict")},
        "reasons": [strip_paths(reason) for reason in found["reasons"]],
        "damaged": found["problem"] is not None,
    }


def _changed_ns(path: Path) -> int:
    """Return when the session last changed: its header is rewritten when it is closed."""
    times = [0]
    for place in (path, path / "_recorder", path / "_recorder" / "session.json"):
        try:
            times.append(place.stat().st_mtime_ns)
        except OSError:
            continue
    return max(times)
