"""The index of the reports: what a row says, where its link leads, and what cannot get into it."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from recorder.common.errors import SessionError, StorageError
from recorder.recording.postprocessing.steps import record_result
from recorder.session.stream import Stream
from recorder.viewers.report import write_report
from recorder.viewers.report.index_rows import group
from recorder.viewers.report.report_index import read_rows, write_index
from recorder.viewers.report.session_scan import scan_session, verdict
from tests.session.build import START_NS, full_session, imu_session
from tests.viewers.report.index_rig import HOSTILE, make_report, make_session


class Page(HTMLParser):
    """What a browser's parser finds in the index.

    Attributes:
        rows: the texts of the cells of every row of a table.
        keys: the value by which each cell is sorted.
        attributes: of every row.
        links: the addresses.
        scripts: the contents of the scripts.
        tags: all.
        policy: the content security policy.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.keys: list[list[str | None]] = []
        self.attributes: list[dict[str, str | None]] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.tags: set[str] = set()
        self.policy = ""
        self._in = ""
        self._cell = False
        self.feed(path.read_text())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.add(tag)
        self._in = tag
        if tag == "tr":
            self.rows.append([])
            self.keys.append([])
            self.attributes.append(values)
        elif tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")
            self.keys[-1].append(values.get("data-v"))
        elif tag == "a":
            self.links.append(values["href"] or "")
        elif tag == "script":
            self.scripts.append("")
        elif values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif self._cell and data.strip():
            self.rows[-1][-1] += f" {data}" if self.rows[-1][-1] else data

    def handle_endtag(self, tag: str) -> None:
        if tag == self._in:
            self._in = ""
        if tag in ("td", "th"):
            self._cell = False

    def row(self, name: str) -> dict[str, str]:
        """A row by the title of its column."""
        (found,) = [row for row in self.rows[1:] if re.match(rf"{re.escape(name)}( |$)", row[0])]
        return dict(zip(self.rows[0], found, strict=True))

    @property
    def names(self) -> list[str]:
        return [row[0].partition(" ")[0] for row in self.rows[1:]]


def test_a_row_says_what_is_known_without_reading_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_session(tmp_path / "lossy", seconds=0.5, lost=3)
    make_report(path, "FAIL", "samples lost (imu): 3", samples=50, marks=2, faults=1)
    (path / "_archives/ncore/.staging").mkdir(parents=True)
    (path / "_archives/vrs").mkdir()
    (path / "_archives/vrs/lossy.vrs").touch()
    for reads in ("read", "iterate", "times"):
        monkeypatch.delattr(Stream, reads)
    index, rows = write_index(tmp_path)
    assert index == tmp_path / "index.html" and len(rows) == 1
    assert index.stat().st_mode & 0o777 == 0o640
    row = Page(index).row("lossy")
    assert row == {
        "Session": "lossy",
        "Verdict": "FAIL samples lost (imu): 3",
        "Start (UTC)": "2024-06-01 10:00:00",
        "Duration": row["Duration"],
        "Vehicle": "rig-1",
        "Samples": "50",
        "Lost": "3",
        "Events": "1 fault 2 marks",
        "Size": row["Size"],
        "Archives": "vrs",
    }
    assert re.fullmatch(r"49\d ms", row["Duration"]) and row["Size"].endswith("kB")
    keys = dict(zip(row, Page(index).keys[1], strict=True))
    assert (keys["Start (UTC)"], keys["Lost"], keys["Samples"]) == (str(START_NS), "3.0", "50")


def test_a_report_of_the_session_as_it_is_spares_the_rest(tmp_path: Path) -> None:
    path = make_session(tmp_path / "s", seconds=0.5, lost=3)
    (looked,) = read_rows(tmp_path, tmp_path)
    write_report(path)
    events = path / "_recorder/events.jsonl"
    events.write_text(events.read_text() * 2)  # would count twice
    (spared,) = read_rows(tmp_path, tmp_path)
    size = (path / "report.html").stat().st_size + events.stat().st_size // 2
    assert spared.summary is not None and spared.summary.samples == 50
    same = ("name", "state", "live", "start_ns", "duration_s", "lost", "lost_intervals", "metadata")
    assert [getattr(spared, key) for key in same] == [getattr(looked, key) for key in same]
    assert list(spared.streams) == list(looked.streams) == ["imu"]
    assert spared.bytes == looked.bytes + size
    header = path / "_recorder/session.json"
    header.write_text(header.read_text().replace('"state": "clean"', '"state": "recovered"'))
    (again,) = read_rows(tmp_path, tmp_path)
    assert again.lost == 6 and again.outdated, "the report is of another state: all is read"


def test_sessions_of_every_state_have_a_row(tmp_path: Path) -> None:
    make_session(tmp_path / "clean", after_s=50)
    make_report(make_session(tmp_path / "killed", after_s=40, state="recovered"), state="recording")
    make_session(tmp_path / "open", after_s=30, state="recording", end_ns=None)
    make_session(tmp_path / "sealed", after_s=20, state="sealed")
    full_session(tmp_path / "trace", 0.1, plain=True)
    damaged = make_session(tmp_path / "damaged")
    (damaged / "_recorder/session.json").write_text("{")
    strange = make_session(tmp_path / "strange", streams=[7])
    page = Page(write_index(tmp_path)[0])
    assert page.names[:4] == ["clean", "killed", "open", "sealed"], "the newest first"
    assert page.row("clean")["Verdict"] == "PASS no report"
    assert page.row("clean")["Samples"] == page.row("clean")["Events"] == "–"
    assert page.row("killed")["Session"] == "killed recovered"
    assert "made before the session was closed" in page.row("killed")["Verdict"]
    assert "not closed: run `recorder recover`" in page.row("open")["Session"]
    assert "its disk failed" in page.row("sealed")["Session"]
    assert page.row("trace")["Lost"] == "–"
    for path in (damaged, strange):
        assert str(path) in page.row(path.name)["Verdict"]
        assert page.row(path.name)["Session"].endswith("unreadable")
    assert page.links == ["killed/report.html"]


def test_a_report_of_an_unknown_version_is_linked_without_its_verdict(tmp_path: Path) -> None:
    path = make_session(tmp_path / "s")
    make_report(path, "GREAT")
    assert Page(write_index(tmp_path)[0]).row("s")["Verdict"] == "PASS"
    (path / "report.html").write_text("<html>from the future</html>")
    page = Page(write_index(tmp_path)[0])
    assert page.row("s")["Verdict"] == "PASS" and page.links == ["s/report.html"]


def test_the_parts_of_a_recording_are_together_below_their_sum(tmp_path: Path) -> None:
    for part, word, lost in ((3, "PASS", 0), (1, "PASS", 0), (2, "FAIL", 2)):
        path = make_session(tmp_path / f"tour_p{part:03d}", after_s=part, lost=lost)
        make_report(path, word, *["worn out"] * lost, marks=part)
    make_session(tmp_path / "walk", after_s=2.5)
    page = Page(write_index(tmp_path)[0])
    assert page.names == ["walk", "tour", "tour_p001", "tour_p002", "tour_p003"]
    total = page.row("tour")
    assert (total["Session"], total["Verdict"]) == ("tour 3 parts", "FAIL")
    assert (total["Samples"], total["Lost"], total["Events"]) == ("60", "2", "6 marks")
    assert total["Start (UTC)"] == page.row("tour_p001")["Start (UTC)"]
    sizes = [int(keys[8] or 0) for keys in page.keys[2:]]
    assert sizes[0] == sum(sizes[1:]) > 3 * 1000
    assert "data-text" not in page.attributes[2], "a sum is no session that a filter counts"


@pytest.mark.parametrize(
    "name", ["a b", "100%", "drive#2", "x?y", "javascript:alert(1)", "Straße", b"\xff\xfe\x80"]
)
def test_links_lead_to_the_report_whatever_the_folder_is_called(
    tmp_path: Path, name: str | bytes
) -> None:
    root, elsewhere = tmp_path / "roo t", tmp_path / "else%where"
    path = root / (os.fsdecode(name) if isinstance(name, bytes) else name)
    root.mkdir()
    elsewhere.mkdir()
    make_report(make_session(path))
    for out in (None, elsewhere / "fleet.html"):
        index, _ = write_index(root, out)
        (link,) = Page(index).links
        assert re.fullmatch(r"[A-Za-z0-9_.~%/-]+", link)
        found = index.parent / unquote(link, errors="surrogateescape")
        assert found.samefile(path / "report.html")


def test_no_text_of_a_session_becomes_markup(tmp_path: Path) -> None:
    path = make_session(
        tmp_path / "s", name=HOSTILE, metadata={"vehicle": HOSTILE, "notes\u202e": HOSTILE}
    )
    make_report(path, "FAIL", HOSTILE, HOSTILE + "\u2066")
    make_report(make_session(tmp_path / "plain"), "FAIL", "one", "two")
    page = Page(write_index(tmp_path)[0])
    path.rename(tmp_path / ".hidden")
    calm = Page(write_index(tmp_path)[0])
    assert page.scripts == calm.scripts and len(page.scripts) == 1
    assert page.tags == calm.tags
    (hostile,) = [row for row in page.rows if row[4] == HOSTILE]
    assert hostile[0] == HOSTILE
    assert not {"\u202e", "\u2066"} & set((tmp_path / "index.html").read_text())
    assert "'unsafe-inline'" not in page.policy and "default-src 'none'" in page.policy


def test_losses_that_nobody_counted_are_more_than_none(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "s", 0.2)
    builder.lose("imu", 20, None, "driver", count=None)
    builder.close()
    page = Page(write_index(tmp_path)[0])
    assert page.row("s")["Lost"] == "0 + 1 uncounted" and page.keys[1][6] == "0.5"


def test_the_step_that_makes_the_report_is_no_reason_of_its_verdict(tmp_path: Path) -> None:
    path = make_session(tmp_path / "s")
    for step, passed in (("report", True), ("ncore", False)):
        record_result(path, step, "it broke")
        assert verdict(scan_session(path)).passed is passed


def test_recordings_are_found_by_what_the_filter_looks_in(tmp_path: Path) -> None:
    path = make_session(tmp_path / "Tour", metadata={"driver": "Ada L.", "weather": "RAIN"})
    make_report(path, "FAIL", "no samples (Radar)")
    page = Page(write_index(tmp_path)[0])
    text = page.attributes[1]["data-text"] or ""
    assert text == text.lower()
    for word in ("tour", "ada l.", "rain", "(radar)", "imu", "2024-06-01", "fail"):
        assert word in text
    assert page.attributes[1]["data-verdict"] == "FAIL"


def test_an_empty_root_and_a_missing_one(tmp_path: Path) -> None:
    index, rows = write_index(tmp_path)
    assert rows == [] and "No sessions." in index.read_text()
    with pytest.raises(SessionError, match=r"nowhere: cannot be listed: No such file"):
        write_index(tmp_path / "nowhere")


def test_an_index_that_cannot_be_written_leaves_the_older_one(tmp_path: Path) -> None:
    index, _ = write_index(tmp_path)
    before = index.read_bytes()
    make_session(tmp_path / "s")
    (tmp_path / "index.html.tmp").mkdir()
    with pytest.raises(StorageError, match=r"index\.html: cannot be written: Is a directory"):
        write_index(tmp_path)
    assert index.read_bytes() == before


def test_a_session_that_goes_meanwhile_has_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_session(tmp_path / "a")
    b = make_session(tmp_path / "b")
    seen: list[Any] = []

    def progress(name: str, share: float) -> None:
        seen.append((name, share))
        if name == "b":
            b.rename(tmp_path / ".deleted")

    rows = list(read_rows(tmp_path, tmp_path, progress))
    assert [row.name for row in rows] == ["a"] and seen == [("a", 0.0), ("b", 0.5)]
    assert [recording.name for recording in group(rows)] == ["a"]
