"""What an operator does with the dashboard, and what is on disk afterwards."""

from __future__ import annotations

import os
import signal
import time

import pytest

from recorder.session.validation import validate
from tests.browser.rig import STREAMS, Dashboard, Rig
from tests.support.events import events

pytestmark = pytest.mark.browser

_SPREAD_NS = 1_000_000_000  # a keypress on its way through a busy machine


def test_start_and_stop_make_a_session_and_stop_asks_back(dashboard: Dashboard, rig: Rig) -> None:
    page = dashboard.open()
    page.click("#start-stop")
    page.wait_for_selector("body[data-recording=true]")
    name, _, verdict = page.inner_text("#session").partition(" · ")
    assert rig.status()["session"]["name"] == name
    assert verdict in ("", "PASS")  # as soon as the session is judged
    dashboard.drawn("camera", "picture")
    page.click("#start-stop")
    page.click("#stop-dialog button:not(.danger)")
    page.wait_for_selector("#stop-dialog", state="hidden")
    assert rig.status()["session"]["name"] == name
    page.click("#start-stop")
    page.click("#stop-dialog button.danger")
    page.wait_for_selector("body[data-recording=false]")
    assert rig.status()["session"] is None
    report = validate(rig.root / name, deep=True)
    assert report.problems == []
    assert {stream for stream in STREAMS if (rig.root / name / stream).is_dir()} == STREAMS


def test_a_mark_has_the_time_of_the_keypress(dashboard: Dashboard, rig: Rig) -> None:
    page = dashboard.open()
    dashboard.start("marked")
    before_ns = time.time_ns()
    page.keyboard.press("m")
    page.wait_for_selector("#toast:has-text('Marked at')")
    after_ns = time.time_ns()
    seq = dashboard.drawn("camera", "picture")
    text_ns = time.time_ns()
    page.keyboard.press("Shift+M")
    dashboard.drawn("camera", "picture", after=seq + 30)
    typed_ns = time.time_ns()
    page.keyboard.type("a cyclist")
    page.keyboard.press("Enter")
    page.wait_for_selector("#events li[data-kind=mark]:has-text('a cyclist')")
    page.wait_for_selector("#timeline canvas[data-marks='2']")
    dashboard.stop()
    plain, cyclist = events(rig.root / "marked", type="mark")
    assert before_ns - _SPREAD_NS < plain["t_ns"] < after_ns + _SPREAD_NS
    assert text_ns - _SPREAD_NS < cyclist["t_ns"] < typed_ns  # the text is typed after that


def test_texts_of_other_people_are_shown_as_texts(dashboard: Dashboard) -> None:
    page = dashboard.open()
    dashboard.start("hostile")
    elements = "document.querySelectorAll('#events script, #events img, #toast img').length"
    for text in ("<img src=x onerror=alert(1)>", "<script>alert(1)", '"&lt;b>'):
        page.keyboard.press("Shift+M")
        page.wait_for_selector("dialog[open] input")
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open]", state="hidden")
        page.locator("#events li[data-kind=mark]").filter(has_text=text).wait_for()
        assert page.evaluate(elements) == 0
    dashboard.stop()


def test_the_row_of_a_killed_driver_changes(dashboard: Dashboard, rig: Rig) -> None:
    page = dashboard.open()
    dashboard.start("killed")
    page.wait_for_selector(".row[data-stream=imu][data-level=good]")
    os.kill(rig.status()["sensors"]["imu"]["pid"], signal.SIGKILL)
    page.wait_for_selector(".row[data-stream=imu][data-level=bad]")
    rows = page.locator("#streams .row").evaluate_all("rows => rows.map(row => row.dataset)")
    assert {row["stream"] for row in rows} == STREAMS
    assert [row["level"] for row in rows] == sorted(
        (row["level"] for row in rows), key=["bad", "warn", "good"].index
    )
    assert page.inner_text("#verdict b") not in ("RECORDING", "READY")
    page.wait_for_selector(".row[data-stream=imu]:not([data-level=bad])")  # started again
    page.wait_for_selector("#events li[data-stream^=imu]")


def test_pages_without_a_recorder_say_so_and_return_to_it(dashboard: Dashboard, rig: Rig) -> None:
    page = dashboard.open()
    dashboard.start("again")
    seq = dashboard.drawn("camera", "picture")
    os.kill(rig.status()["live"]["pid"], signal.SIGKILL)
    page.wait_for_selector("#banner:has-text('what you see is old')")
    assert "grayscale" in page.locator("main").evaluate("e => getComputedStyle(e).filter")
    page.keyboard.press("m")
    page.wait_for_selector("#toast:has-text('Not marked')")
    page.wait_for_selector("#banner", state="hidden")  # the daemon has started it again
    dashboard.drawn("camera", "picture", after=seq)
    page.wait_for_selector("body[data-live=yes] main")
    # Chromium logs each attempt to connect that fails.
    dashboard.complaints = [c for c in dashboard.complaints if "WebSocket connection" not in c]
