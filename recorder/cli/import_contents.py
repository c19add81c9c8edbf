"""Plan of the import of a file or dataset whose reader returns its `Contents`.

`--plan` names each part, what becomes of it, and what is lost.  The labels are read before the
session is made, into a temporary folder, so that a damaged file writes nothing.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recorder.cli.import_kinds import ImportPlan, load_config
from recorder.common.errors import FormatError, SourceError
from recorder.common.files import PosixDisk
from recorder.common.text_format import clean

if TYPE_CHECKING:
    from recorder.archives.importing import Contents
    from recorder.config.loading import Config
    from recorder.recording.foreground import Outcome

_STAGED: Final = "files"


@dataclass(slots=True)
class ContentsPlan(ImportPlan):
    """Plan of the import of a file or dataset.

    Attributes:
        contents: what the file becomes.
        config: config of the session.
        folder: temporary folder, which holds the session's files until its end.
    """

    contents: Contents
    config: Config
    folder: Path

    @property
    def start_ns(self) -> int:  # type: ignore[override]
        return self.contents.start_ns

    @property
    def duration_s(self) -> float:
        return (self.contents.end_ns - self.contents.start_ns) / 1e9

    def describe(self) -> dict[str, Any]:
        contents = self.contents
        return {
            "from": str(contents.path.absolute()),
            "kind": contents.kind,
            "start_ns": contents.start_ns,
            "duration_s": self.duration_s,
            "sensors": {
                sensor.name: {
                    "origin": sensor.origin,
                    "driver": sensor.driver,
                    "becomes": sensor.becomes,
                    "samples": sensor.samples,
                    "lost": list(sensor.lost),
                }
                for sensor in contents.sensors
            },
            "files": {
                file.origin: {"becomes": file.becomes, "lost": list(file.lost)}
                for file in contents.files
            },
            "lost": contents.lost,
            "mounts": sorted(n for n, e in contents.calibration.items() if "T_sensor_rig" in e),
            "models": sorted(n for n, e in contents.calibration.items() if "model" in e),
            "notes": contents.notes,
        }

    def format(self) -> str:
        contents, told = self.contents, self.describe()
        lines = [f"{contents.path}: {contents.kind}, {self.duration_s:.1f} s"]
        for sensor in contents.sensors:
            number = "-" if sensor.samples is None else str(sensor.samples)
            lines.append(
                f"{sensor.origin}  {number}  -> sensor {sensor.name} ({sensor.driver}): "
                f"{sensor.becomes}"
            )
        lines += [f"{file.origin}  -> {file.becomes}" for file in contents.files]
        for what in ("mounts", "models"):
            lines.append(f"{what}: {', '.join(told[what]) or 'none'}")
        return "\n".join(map(clean, [*lines, *self._remarks()]))

    def _remarks(self) -> list[str]:
        """Return what is lost, and the notes, as lines."""
        contents = self.contents
        parts = [(part.origin, why) for part in contents.sensors for why in part.lost]
        parts += [(part.origin, why) for part in contents.files for why in part.lost]
        lines = [f"lost: {origin}: {why}" for origin, why in (*contents.lost.items(), *parts)]
        return [*lines, *(f"note: {each}" for each in contents.notes)]

    def describe_origin(self) -> dict[str, Any]:
        told = self.describe()
        return {key: told[key] for key in ("from", "kind", "sensors", "files", "lost", "notes")}

    def describe_result(self) -> dict[str, Any]:
        told = self.describe()
        keys = ("kind", "sensors", "files", "lost", "mounts", "models", "notes")
        return {key: told[key] for key in keys}

    def format_result(self, outcome: Outcome) -> list[str]:
        contents = self.contents
        lines = [f"{sensor.origin} -> {sensor.name}" for sensor in contents.sensors]
        lines += [f"{file.origin} -> {file.becomes}" for file in contents.files]
        return [*lines, *self._remarks(), *(f"fault: {fault}" for fault in outcome.faults)]

    def prepare(self) -> None:
        staged = self.folder / _STAGED
        staged.mkdir()
        try:
            for file in self.contents.files:
                if file.prepare is not None:
                    file.prepare(staged)
        except FormatError as error:
            raise SourceError(str(error)) from None

    def complete(self, session: Path) -> None:
        disk, staged = PosixDisk(), self.folder / _STAGED
        for path in sorted(staged.rglob("*")):
            target = session / path.relative_to(staged)
            if path.is_dir():
                disk.make_folder(target)
            else:
                shutil.copyfile(path, target)
        for file in self.contents.files:
            if file.complete is not None:
                file.complete(session)


def plan_contents(args: argparse.Namespace, folder: Path, contents: Contents) -> ContentsPlan:
    """Plan the import of what a reader found; open every sensor as the import itself does.

    Raises:
        UsageError: a sensor's entry is invalid.
        SourceError: there is nothing to import, or a driver cannot play its part.
    """
    import yaml

    from recorder.recording.supervisor.driver_registry import check_sources

    if not contents.sensors:
        why = "; ".join(f"{origin}: {reason}" for origin, reason in contents.lost.items())
        raise SourceError(f"{args.file}: has no sensor to import" + (f": {why}" if why else ""))
    sensors = {
        sensor.name: {"driver": sensor.driver, "source": sensor.source, "pace": "max"}
        | dict(sensor.options)
        for sensor in contents.sensors
    }
    text = None
    if contents.calibration:
        text = yaml.safe_dump({"sensors": contents.calibration}, sort_keys=False)
    config = load_config(folder, sensors, text)
    for entry, result in zip(config.sensors, check_sources(config.sensors), strict=True):
        if result.problem is not None:
            raise SourceError(f"{entry.name}: {result.problem}")
    return ContentsPlan(contents, config, folder)
