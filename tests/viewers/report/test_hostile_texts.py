"""Hostile texts in every place of a session are shown as texts."""

from __future__ import annotations

import json
from pathlib import Path

from recorder.session.events import make_event
from recorder.viewers.report import write_report
from tests.session.build import START_NS, imu_session, rewrite_header
from tests.viewers.report.reading import Page

S = 1_000_000_000


class Traps:
    """Makes hostile texts, each with the name of its place."""

    def __init__(self) -> None:
        self.places: list[str] = []

    def __call__(self, place: str) -> str:
        self.places.append(place)
        return f"</p></td></pre><script>alert('{place}')</script>\" onload=\"x\" '`&\u202e\x00\x1b"

    def shown(self, place: str) -> str:
        return f"<script>alert('{place}')</script>\" onload=\"x\" '`&\\u202e\\x00\\x1b"


def test_no_text_of_a_session_becomes_markup(tmp_path: Path) -> None:
    trap = Traps()
    builder = imu_session(tmp_path / "rig", seq=[*range(30), *range(40, 100)])
    at = START_NS + S // 2
    builder.lose("imu", 30, 39, trap("cause"), t_ns=at)
    builder.events += [
        make_event("mark", at, text=trap("mark")),
        make_event("fault", at, trap("fault stream"), trap("fault"), detail=trap("fault detail")),
        make_event("clock", at, cause="step", step_ns=5, detail=trap("step")),
        make_event("clock", at, cause="state", detail=trap("clock state"), kernel={"offset_ns": 1}),
        make_event(trap("type"), at, cause="x"),
        make_event("odd", at) | {trap("key"): {trap("inner key"): trap("inner")}},
        make_event("lost", at, trap("stream"), "device", count=None, duration_ns=S),
        make_event("end", at, cause=trap("end"), detail=trap("end detail")),
    ]
    path = builder.close()
    header = path / "_recorder" / "session.json"
    spec = json.loads(header.read_text())["streams"]["imu"]
    spec["description"] = trap("description")
    spec["settings"] = {trap("setting"): trap("value"), "list": [trap("item")]}
    spec["channels"][0] |= {"description": trap("channel"), "unit": trap("unit")}
    rewrite_header(
        path,
        name=trap("name"),
        hostname=trap("host"),
        recorder_version=trap("version"),
        previous=trap("previous"),
        boot_id=trap("boot"),
        metadata={trap("metadata name"): trap("metadata"), "list": [{"a": trap("metadata list")}]},
        streams={"imu": spec},
        sensors={
            "imu": {"streams": ["imu"], "driver": trap("driver"), "source": trap("source")},
            trap("sensor"): {"streams": [trap("sensor stream")], "min_rate": trap("min rate")},
        },
    )
    meta = path / "imu" / "meta.json"
    (path / "_recorder" / "log.jsonl").write_text(
        json.dumps({"t_ns": 1, "stream": trap("log stream"),
                    "state": {trap("state key"): trap("state")}}) + "\n"
    )  # fmt: skip
    steps = {trap("step name"): {"done": False, "tries": 2, "error": trap("step error")}}
    (path / "_recorder" / "finalize.json").write_text(json.dumps({"version": 1, "steps": steps}))
    (path / "config.yaml").write_text(f"version: 1\n# {trap('config')}\n")
    document = {"sensors": {trap("calibrated"): {"calibrated_at": trap("calibrated at")}}}
    (path / "calibration.yaml").write_text(json.dumps(document))
    folder = path / "_archives" / "ncore"
    folder.mkdir(parents=True)
    (folder / "<img src=x onerror=alert('file')>").touch()
    (path / "_archives" / "<b onload=alert('archive')>.json").write_text("{}")
    record = {
        "notes": [trap("note")],
        "options": {trap("option"): 1},
        "summary": {"frames": {trap("frames"): trap("count")}, "x": trap("summary")},
    }
    (path / "_archives" / "ncore.json").write_text(json.dumps(record))
    bad = path / "<i onclick=alert('folder')>"
    bad.mkdir()
    (bad / "meta.json").write_text(f'{{"{"<script>"}": 3}}')
    assert meta.is_file()

    page = Page(write_report(path))
    hidden = [place for place in trap.places if trap.shown(place) not in _plain(page.text)]
    assert hidden == []
    for text in ("<img src=x onerror=alert('file')>", "<i onclick=alert('folder')>"):
        assert text in page.text


def _plain(text: str) -> str:
    """The text with JSON's own escapes undone, which some values have within others."""
    for escaped, plain in (("\\u0000", "\\x00"), ("\\u001b", "\\x1b"), ('\\"', '"')):
        text = text.replace(escaped, plain)
    return text
