"""A recorded session in the same page: what is shown is the sample that is stored for the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from recorder.session.reader import Session
from tests.browser.rig import Dashboard, viewing

pytestmark = pytest.mark.browser


@pytest.fixture
def played(browser: Browser, recorded: Path) -> Iterator[Dashboard]:
    with viewing(recorded) as url:
        dashboard = Dashboard(browser, url)
        dashboard.open()
        dashboard.page.wait_for_selector("body[data-mode=playback] #playback[data-t-ns]")
        yield dashboard
        dashboard.close()


def position(page: Page) -> int:
    return int(page.get_attribute("#playback", "data-t-ns") or 0)


def shows(dashboard: Dashboard, stream: str, view: str, seq: int) -> None:
    """Wait until this sample is on the screen."""
    selector = f"{dashboard.canvas(stream, view)}[data-seq='{seq}']"
    dashboard.page.wait_for_selector(selector)


def pause(page: Page) -> None:
    if page.get_attribute("#playback", "data-playing") == "true":
        page.keyboard.press(" ")
    page.wait_for_selector("#playback[data-playing=false]")


def test_seeking_shows_the_stored_samples(played: Dashboard, recorded: Path) -> None:
    page = played.page
    pause(page)
    with Session(recorded) as session:
        times = {name: stream.t_ns for name, stream in session.streams.items()}
    for part in (0.7, 0.2):
        canvas = page.locator("#timeline canvas")
        box = canvas.bounding_box()
        assert box is not None
        before = position(page)
        page.mouse.click(box["x"] + 96 + part * (box["width"] - 108), box["y"] + 30)
        page.wait_for_selector(f"#playback:not([data-t-ns='{before}'])")
        t_ns = position(page)
        for stream, view in (
            ("camera", "picture"),
            ("lidar", "points"),
            ("radar", "range_doppler"),
        ):
            stored = int(np.searchsorted(times[stream], t_ns, "right")) - 1
            shows(played, stream, view, stored)
            shown_ns = page.get_attribute(played.canvas(stream, view), "data-t-ns")
            assert shown_ns == str(times[stream][stored])


def test_steps_ends_and_speed_by_keys(played: Dashboard, recorded: Path) -> None:
    page = played.page
    pause(page)
    with Session(recorded) as session:
        times = session.streams["camera"].t_ns
    page.keyboard.press("Home")
    page.wait_for_selector("#position:has-text('0:00:00.0 /')")
    first = int(np.searchsorted(times, position(page), "right")) - 1
    page.keyboard.press("ArrowRight")
    shows(played, "camera", "picture", first + 1)
    page.keyboard.press("ArrowRight")
    shows(played, "camera", "picture", first + 2)
    page.keyboard.press("ArrowLeft")
    shows(played, "camera", "picture", first + 1)
    page.keyboard.press("End")
    shows(played, "camera", "picture", len(times) - 1)
    page.keyboard.press("[")
    page.wait_for_selector("#playback[data-speed='0.5']")
    page.keyboard.press("]")
    page.keyboard.press("]")
    page.wait_for_selector("#playback[data-speed='2']")


def test_playing_moves_the_picture(played: Dashboard) -> None:
    page = played.page
    pause(page)
    page.keyboard.press("Home")
    played.drawn("camera", "picture")
    before = played.picture(played.canvas("camera", "picture"))
    page.click("#play")
    page.wait_for_selector("#playback[data-playing=true]")
    played.drawn("camera", "picture", after=20)
    assert (
        np.abs(before.astype(int) - played.picture(played.canvas("camera", "picture"))) > 30
    ).any()


def test_playback_offers_no_recording(played: Dashboard) -> None:
    page = played.page
    assert page.locator("#mark:visible, #start-stop:visible").count() == 0
    page.keyboard.press("s")
    page.keyboard.press("m")
    assert page.locator("dialog[open], #toast:visible").count() == 0
