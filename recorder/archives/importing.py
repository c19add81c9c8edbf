"""What a file or dataset of others becomes when it is imported, and what is lost.

The readers of the kinds of files return a `Contents`; `recorder.cli.import_contents` makes the
plan and the session of it.  Nothing is written before `SessionFile.prepare`.

::

    contents = read_contents(path)
    contents.sensors[0].source          # "ncore:/data/drive.json#front"
    contents.lost                       # {"masks/default": "..."}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

LONGEST_NAME: Final = 40


@dataclass(frozen=True)
class PlannedSensor:
    """A sensor of the session that is to be made.

    Attributes:
        name: name of the sensor.
        driver, source: driver that plays the sensor, and its source.
        origin: name of the sensor's data in the file, such as ``cameras/front``.
        becomes: a few words on what is recorded.
        samples: number of samples; None: not known.
        lost: what of it is not imported, one sentence each.
        options: further options of the driver.
    """

    name: str
    driver: str
    source: str
    origin: str
    becomes: str
    samples: int | None = None
    lost: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SessionFile:
    """Files of the session besides the sensors' samples: labels, masks, poses.

    Attributes:
        origin: name of the data in the file, such as ``cuboids/default``.
        becomes: a few words on what is made of it, such as ``12 cuboids``.
        prepare: writes files below an empty folder, which become the session's, before anything is
            recorded; raises FormatError for damaged data.
        complete: writes into the session at its end, whose header is needed for times.
        lost: what of it is not imported, one sentence each.
    """

    origin: str
    becomes: str
    prepare: Callable[[Path], None] | None = None
    complete: Callable[[Path], None] | None = None
    lost: Sequence[str] = ()


@dataclass
class Contents:
    """What a file or dataset becomes.

    Attributes:
        path: the file or folder.
        kind: what it is, such as ``NCore sequence``.
        start_ns, end_ns: its first and last time, epoch ns.
        sensors: sensors of the session.
        files: labels, masks and poses.
        calibration: entries of ``sensors`` in the session's calibration.
        lost: what is not imported, by its name in the file, with the reason.
        notes: remarks.
    """

    path: Path
    kind: str
    start_ns: int
    end_ns: int
    sensors: list[PlannedSensor] = field(default_factory=list)
    files: list[SessionFile] = field(default_factory=list)
    calibration: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def make_name(wanted: str, taken: Collection[str] = ()) -> str:
    """Make a valid and new name of a sensor from any text."""
    base = re.sub(r"[^a-z0-9]+", "_", wanted.lower()).strip("_")[:LONGEST_NAME] or "sensor"
    if not base[0].isalpha():
        base = f"s_{base}"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name
