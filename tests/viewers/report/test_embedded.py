"""The summary in a report's head: what is written is what is read, and nothing breaks out of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.session.outputs import (
    HEAD_BYTES,
    SessionSummary,
    read_summary,
    summary_element,
)
from recorder.session.verdict import Reason, Verdict
from recorder.viewers.report.assembly import _sum_up
from recorder.viewers.report.markup import page
from recorder.viewers.report.session_scan import SessionScan
from tests.viewers.report.test_markup import Reader

SUMMARY = SessionSummary("clean", "FAIL", ("imu: 3 samples lost (refused)",), 1200, 2, 1)


def written(folder: Path, text: str) -> Path:
    path = folder / "report.html"
    path.write_text(f"<!doctype html><html><head>{text}</head></html>")
    return path


@given(reasons=st.lists(st.text(st.characters(codec="utf-8")), max_size=4))
def test_a_summary_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, reasons: list[str]
) -> None:
    summary = SessionSummary("recovered", "FAIL", tuple(reasons), 7, 0, len(reasons))
    path = written(tmp_path_factory.mktemp("report"), summary_element(summary))
    assert read_summary(path) == summary


@pytest.mark.parametrize(
    "text",
    ['"><img src=x onerror=alert(1)>', "<!--<script>", "&quot;>&lt;b>&#34;", "\x7f\u202e\x9b\n"],
)
def test_no_text_ends_the_element(tmp_path: Path, text: str) -> None:
    summary = SessionSummary("clean", "FAIL", (text,), 1, 0, 0)
    element = summary_element(summary)
    assert Reader(f"<head>{element}<title>t</title></head>").tags == ["head", "meta", "title"]
    assert element.isascii() and element.isprintable()
    assert read_summary(written(tmp_path, element)) == summary


def test_what_is_no_report_has_no_summary(tmp_path: Path) -> None:
    element = summary_element(SUMMARY)
    assert read_summary(tmp_path / "missing.html") is None
    assert read_summary(tmp_path) is None, "a folder"
    for text in (
        "",
        element.replace("&quot;version&quot;:1", "&quot;version&quot;:2"),
        element.replace("1200", "&quot;many&quot;"),
        element.replace("&quot;samples&quot;:1200,", ""),
        element.replace("}}", "}"),
        element.replace("session-summary", "another"),
    ):
        assert text != element
        assert read_summary(written(tmp_path, text)) is None, text
    (tmp_path / "report.html").write_bytes(element.encode().replace(b"refused", b"\xff\xfe"))
    assert read_summary(tmp_path / "report.html") is None


def test_only_the_head_of_the_file_is_read(tmp_path: Path) -> None:
    element = summary_element(SUMMARY)
    assert read_summary(written(tmp_path, " " * (HEAD_BYTES // 2) + element)) == SUMMARY
    assert read_summary(written(tmp_path, " " * HEAD_BYTES + element)) is None


def test_a_session_with_everything_wrong_has_a_summary_that_is_read(tmp_path: Path) -> None:
    found = SessionScan(tmp_path, "s", state="sealed")
    reasons = [Reason("\U0001f4a5" * 1000, "'\"&<" * 1000, "\udcff") for _ in range(500)]
    text = page("s", data=summary_element(_sum_up(found, Verdict(False, reasons, ()))))
    (tmp_path / "report.html").write_text(text)
    summary = read_summary(tmp_path / "report.html")
    assert summary is not None and summary.verdict == "FAIL"
    assert len(summary.reasons) == 31 and summary.reasons[-1] == "and 470 more"
