"""Section on the archives of a session, with their notes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from recorder.common.text_format import format_bytes, format_seconds, format_time
from recorder.session.layout import ARCHIVES
from recorder.session.outputs import PACKED_PARTS, read_records
from recorder.session.summary import folder_bytes
from recorder.viewers.report.markup import (
    Content,
    Html,
    details,
    element,
    escape_lines,
    table,
)
from recorder.viewers.report.report_context import ReportContext

_MOST_NOTES: Final = 40
_MOST_FILES: Final = 20


def archives_section(material: ReportContext) -> Content:
    """Make the section on ``_archives`` and the result of each postprocessing step."""
    path = material.session.path
    records = read_records(path)
    places = _find_archives(path / ARCHIVES)
    steps, skipped = material.found.postprocessing
    if not (records or places or steps):
        if material.found.header.get("recorder_version") is None:
            return None
        text = "No archive was packed."
        text += " The session was recorded without finalizing." if skipped else ""
        return element("p", text, class_="muted")
    made: list[Content] = []
    for name in sorted({*records, *places}):
        made.append(_describe_archive(name, records.get(name, {}), places.get(name)))
    if steps:
        rows = [[step, _format_result(entry)] for step, entry in steps.items()]
        made.append(table(("Step after the recording", "Result"), rows))
    return made


def _find_archives(folder: Path) -> dict[str, Path]:
    """Return the folder of each archive, by name of its record."""
    found: dict[str, Path] = {}
    try:
        for place in folder.iterdir():
            if place.name == PACKED_PARTS and place.is_dir():
                for part in filter(Path.is_dir, place.iterdir()):
                    found |= {f"{p.name}, {part.name}": p for p in part.iterdir() if p.is_dir()}
            elif place.is_dir() and not place.name.startswith("."):
                found[place.name] = place
    except OSError:
        pass
    return found


def _describe_archive(name: str, record: Mapping[str, Any], place: Path | None) -> Html:
    facts: list[str] = []
    files: list[str] = []
    if place is None:
        facts.append("is not there any more")
    else:
        facts.append(format_bytes(folder_bytes(place)))
        try:
            files = sorted(p.name for p in place.iterdir() if not p.name.startswith("."))
        except OSError as error:
            facts.append(f"cannot be read: {error.strerror}")
    if isinstance(record.get("packed_ns"), int):
        facts.append(f"packed {format_time(record['packed_ns'])}")
    if isinstance(record.get("seconds"), int | float):
        facts.append(f"in {format_seconds(record['seconds'])}")
    notes = record.get("notes")
    notes = [str(note) for note in notes] if isinstance(notes, list) else []
    listed = [element("li", note) for note in notes[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        listed.append(element("li", f"and {len(notes) - _MOST_NOTES} more notes"))
    shown = files[:_MOST_FILES]
    more = f" and {len(files) - len(shown)} more" if len(files) > len(shown) else ""
    content: list[Content] = [
        element("h3", name, " ", element("small", ", ".join(facts))),
        element("p", ", ".join(shown) + more, class_="muted") if shown else None,
        _format_summary(record),
        element("ul", listed) if listed else None,
    ]
    if record and not notes:
        content.append(element("p", "No notes.", class_="muted"))
    if not record:
        content.append(element("p", "Its notes were not recorded.", class_="muted"))
    return element("div", content)


def _format_summary(record: Mapping[str, Any]) -> Content:
    summary = record.get("summary")
    if not isinstance(summary, Mapping) or not summary:
        return None
    frames = summary.get("frames")
    text = ""
    if isinstance(frames, Mapping):
        text = "Frames: " + ", ".join(f"{name} {count}" for name, count in frames.items())
    rest = {key: value for key, value in summary.items() if key != "frames"}
    options = record.get("options")
    if isinstance(options, Mapping) and options:
        rest["options"] = dict(options)
    more = (
        details("Summary", element("pre", escape_lines(json.dumps(rest, indent=1), 20_000)))
        if rest
        else None
    )
    return [element("p", text) if text else None, more]


def _format_result(entry: Mapping[str, Any]) -> str:
    if entry.get("done"):
        return "done"
    return f"failed, {entry.get('tries')} tries: {entry.get('error')}"
