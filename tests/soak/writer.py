"""The writer with a calendar clock and a disk that a soak may disturb, through a file.

``{"step_s": 2.5, "free_bytes": null}`` in the file that ``RECORDER_SOAK`` names: the calendar
clock is off by so much, and the disk has so much left (null: what it has).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from recorder.common.clock import SystemClock
from recorder.common.files import PosixDisk
from recorder.recording.writer import __main__ as writer


def _world() -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(Path(os.environ["RECORDER_SOAK"]).read_bytes())
    except (OSError, ValueError):
        return {"step_s": 0.0, "free_bytes": None}
    return values


class _Disk(PosixDisk):
    def free_bytes(self, path: Path) -> int:
        free: int | None = _world()["free_bytes"]
        return super().free_bytes(path) if free is None else free


class _Clock(SystemClock):
    def realtime_ns(self) -> int:
        return time.time_ns() + round(float(_world()["step_s"]) * 1e9)


if __name__ == "__main__":
    writer.PosixDisk, writer.SystemClock = _Disk, _Clock  # type: ignore[attr-defined]
    sys.exit(writer.main())
