"""Sections on the setup: disk, software, sensors and their settings, calibration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from recorder.common.errors import RecorderError
from recorder.common.secret_masking import mask_passwords
from recorder.config.yaml_lines import shareable_text
from recorder.perception.calibration import read_calibration
from recorder.session import layout
from recorder.session.events import INCOMPLETE
from recorder.session.journal.journal import read_journal
from recorder.viewers.report.drawing import Axis, bars, count_axis, plot
from recorder.viewers.report.markup import (
    Content,
    details,
    element,
    escape_lines,
    pairs,
    table,
)
from recorder.viewers.report.report_context import ReportContext

_MOST_TEXT: Final = 30_000
_MOST_LOG: Final = 1 << 18
_MOST_VALUES: Final = 200  # settings of a stream


def disk_section(material: ReportContext) -> Content:
    """Make the section on the durations of commits: writing and syncing all data to the disk."""
    if not material.found.recorded:
        return None
    state = read_journal(layout.private(material.session.path, layout.JOURNAL))
    durations = state.durations()
    if durations is None:
        return None
    powers = sorted(state.took)
    first, last = powers[0], powers[-1]
    counts = [state.took.get(power, 0) for power in range(first, last + 1)]
    y, levels = count_axis(counts, "commits")
    x = Axis(0.0, float(len(counts)), [float(k) for k in range(len(counts))], "",
             lambda k: f"{_get_bound(first + int(k)):g} ms")  # fmt: skip
    notes = [f"{_get_bound(first + k):g} to {_get_bound(first + k + 1):g} ms: {count} commits"
             for k, count in enumerate(counts)]  # fmt: skip
    interval = material.found.header.get("sync_interval_ms")
    text = f"{durations['count']:g} commits: half took less than {durations['half_ms']:g} ms, 99% "
    text += f"less than {durations['most_ms']:g} ms, the longest {durations['longest_ms']:.0f} ms. "
    if interval is not None:
        text += f"A commit begins every {interval} ms."
    drawn = plot("durations of commits", x, y, [bars(y, levels, 90, notes)], height=90, text=text)
    return [element("p", text), element("div", drawn, class_="plots")]


def _get_bound(power: int) -> float:
    """Return the lower bound of a class of commits, in ms: 2**(power - 1)."""
    return 0.0 if power <= 0 else float(2 ** (power - 1))


def setup_section(material: ReportContext) -> Content:
    """Make the section on software, sensors with their settings, calibration, and the config."""
    found = material.found
    header = found.header
    rows: list[tuple[Content, Content]] = [
        (title, _mask(header[key]))
        for title, key in (
            ("Recorder", "recorder_version"),
            ("Host", "hostname"),
            ("Boot", "boot_id"),
            ("Requested duration [s]", "duration_s"),
            ("Minimum of free space [GB]", "min_free_gb"),
        )
        if header.get(key) is not None
    ]
    made: list[Content] = [pairs(rows) if rows else None]
    if found.sensors:
        made.append(table(("Sensor", "Driver", "Source", "Streams", "Live", "Minimum rate"),
                          [_list_sensor(name, entry) for name, entry in found.sensors.items()],
                          caption="Sensors"))  # fmt: skip
    for name, spec in found.declared.items():
        values = list(_flatten(spec.settings))
        more = len(values) - _MOST_VALUES
        left = f" ({more} more settings are not listed)" if more > 0 else ""
        about: list[tuple[Content, Content]] = [("Description", spec.description or "–")]
        about += values[:_MOST_VALUES]
        made.append(details(f"Settings of {name}{left}", pairs(about)))
    if states := _read_states(material):
        made.append(details("States that sensors reported at the start", pairs(states)))
    made.append(_describe_calibration(material))
    config = material.session.path / "config.yaml"
    try:
        text = shareable_text(config.read_text("utf-8", "replace"))
        made.append(details("config.yaml", element("pre", escape_lines(text, _MOST_TEXT))))
    except OSError as error:
        made.append(element("p", f"config.yaml: cannot be read: {error.strerror}", class_="odd"))
    return made


def _list_sensor(name: str, entry: Mapping[str, Any]) -> list[Content]:
    streams = entry.get("streams")
    listed = ", ".join(map(str, streams)) if isinstance(streams, list) else None
    live = entry.get("live")
    rate = entry.get("min_rate")
    return [
        element("b", name),
        _mask(entry.get("driver")),
        _mask(entry.get("source")),
        listed or None,
        None if live is None else "yes" if live else "no",
        None if rate is None else f"{rate} Hz",
    ]


def _mask(value: Any) -> str | None:
    return None if value is None else mask_passwords(str(value))


def _flatten(values: Any, path: str = "", depth: int = 0) -> Iterator[tuple[Content, Content]]:
    """Yield nested settings, each with its path: ``radar.tx_start_time``."""
    if isinstance(values, Mapping) and depth < 6:
        for key, value in values.items():
            yield from _flatten(value, f"{path}.{key}" if path else str(key), depth + 1)
    elif values not in (None, "", [], {}):
        plain = (
            values
            if isinstance(values, str | int | float | bool)
            else json.dumps(values, default=str)
        )
        yield path, mask_passwords(str(plain))


def _read_states(material: ReportContext) -> list[tuple[Content, Content]]:
    """Read each stream's first state of each kind, such as its firmware or its mode."""
    path = layout.private(material.session.path, layout.LOG)
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_LOG).split(b"\n")[:-1]
    except OSError:
        return []
    known: dict[str, Any] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            stream, state = str(entry["stream"]), entry["state"]
        except (ValueError, LookupError, TypeError, RecursionError):
            continue  # the check of the session reports it
        if isinstance(state, Mapping) and INCOMPLETE not in state:
            for key, value in state.items():
                known.setdefault(f"{stream}: {key}", value)
    rows = [row for key, value in known.items() for row in _flatten(value, key)]
    return rows[:_MOST_VALUES]


def _describe_calibration(material: ReportContext) -> Content:
    path = material.session.path / "calibration.yaml"
    if not path.is_file():
        return element("p", "No calibration: the places of the sensors are not known.",
                       class_="muted")  # fmt: skip
    try:
        calibration = read_calibration(path)
    except RecorderError as error:
        return material.fail("calibration", error)
    rows: list[list[Content]] = []
    for name, sensor in calibration.sensors.items():
        place = None
        if sensor.pose is not None:
            place = ", ".join(f"{value:.3f}" for value in sensor.pose[:3, 3].tolist())
        size = None if sensor.resolution is None else "{} × {}".format(*sensor.resolution)
        antennas = sensor.antennas
        phases = None
        if antennas is not None:
            phases = f"{antennas.get('device', '')}, residual {antennas.get('residual_deg', '?')}°"
        rows.append([element("b", name), place, sensor.model, size, phases, sensor.calibrated_at])
    known = set(calibration.sensors)
    missing = [s.name for s in material.streams if s.name not in known
               and not any(s.name.startswith(f"{n}_") for n in known)]  # fmt: skip
    heads = ("Sensor", "Place in the rig: x, y, z [m]", "Model", "Resolution", "Antennas", "Date")
    made: list[Content] = [table(heads, rows, caption=f"Calibration, SHA-256 {calibration.sha256}")]
    if missing:
        text = f"Not in the calibration: {', '.join(missing)}"
        made.append(element("p", text, class_="muted"))
    return made
