"""Nothing on the page looks as if it were of now when it is not.

Where time matters it is the test's: the page's clock is moved on by a second.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from tests.browser.rig import Dashboard, Picture, Rig, viewing
from tests.browser.test_playback import pause, position
from tests.session.build import Builder, camera_spec, imu_spec

pytestmark = pytest.mark.browser

SHOWN = "#bar .rec, .fact:not(#verdict), .row .rate, .row .word, .panel .body, #timeline"
_LIVELY = """selector => [...document.querySelectorAll(selector)].filter((shown) => {
    for (let e = shown; e; e = e.parentElement)
        if (getComputedStyle(e).filter.includes('grayscale(1)')) return false;
    return shown.checkVisibility();
}).map(e => e.outerHTML.slice(0, 100))"""
_AGES = """async ([rateHz, samples, times]) => {
    const { Freshness } = await import('/static/ages.js');
    const fresh = new Freshness();
    for (const [age_ms, madeMs] of samples) fresh.take({ age_ms, madeMs, t_ns: madeMs }, madeMs);
    return times.map((ms) => fresh.oldFor(ms, rateHz) > 0);
}"""
BLUE = np.array([255, 163, 74])
"""BGR of a plot's first line."""


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does not run, and closes nothing, as where a plug is pulled."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def camera(age: str) -> str:
    return f".panel[data-stream=camera][data-view=picture][data-age={age}]"


def test_without_the_live_process_all_is_grey_within_a_second(browser: Browser, rig: Rig) -> None:
    dashboard = Dashboard(browser, rig.url)
    page = dashboard.page
    page.clock.install()
    dashboard.open()
    dashboard.start("unplugged")
    dashboard.drawn("camera", "picture")
    page.wait_for_function(f"selector => ({_LIVELY})(selector).length > 0", arg="#bar .rec")
    page.wait_for_selector(".panel[data-age=fresh]")
    with stopped(rig.status()["live"]["pid"]):
        page.clock.run_for(1000)
        assert page.evaluate(_LIVELY, SHOWN) == []
        assert page.get_attribute("#verdict", "data-level") == "unknown"
        animation = "getComputedStyle(document.querySelector('.rec .icon')).animationName"
        assert page.evaluate(animation) == "none"
        page.clock.run_for(3000)
        covers = page.locator(".panel[data-drawn]:visible .cover").all()
        assert covers and all("since" in cover.inner_text() for cover in covers)
        page.clock.run_for(4000)
        page.wait_for_selector("#banner:has-text('what you see is old')")
    page.clock.resume()
    page.wait_for_selector("body[data-live=yes]")
    dashboard.close(expected="WebSocket connection")


def test_without_the_daemon_all_is_grey(dashboard: Dashboard, rig: Rig) -> None:
    page = dashboard.open()
    dashboard.start("hung")
    dashboard.drawn("camera", "picture")
    page.wait_for_selector("body[data-live=yes]")
    with stopped(rig.status()["pid"]):
        page.wait_for_selector("body[data-live=no]")
        assert page.evaluate(_LIVELY, SHOWN) == []
        page.wait_for_selector("#verdict:has-text('NOT KNOWN')")
    page.wait_for_selector("body[data-live=yes]")


def test_a_lost_cameras_picture_is_greyed_and_covered(dashboard: Dashboard, rig: Rig) -> None:
    page = dashboard.open()
    dashboard.start("lost_camera")
    dashboard.drawn("camera", "picture")
    page.wait_for_selector(camera("fresh"))
    with stopped(rig.status()["sensors"]["camera"]["pid"]):
        page.wait_for_selector(camera("old"))
        body = f"{camera('old')} .body, {camera('covered')} .body"
        page.wait_for_function(f"selector => ({_LIVELY})(selector).length === 0", arg=body)
        page.wait_for_selector(".row[data-stream=camera][data-fresh=false]:not([data-level=good])")
        page.wait_for_selector("#verdict:not([data-level=good])")
        page.wait_for_selector(f"{camera('covered')} .cover:has-text('No data since ')")
        age = page.inner_text(".panel[data-stream=camera] .number")
        page.wait_for_function(
            "age => document.querySelector('.panel[data-stream=camera] .number').innerText !== age",
            arg=age,
        )
        page.wait_for_selector(".panel[data-stream=imu][data-age=fresh]")
    page.wait_for_selector(f"{camera('fresh')} .cover[hidden]", state="attached")


@pytest.mark.parametrize(
    ("rate_hz", "delay_ms", "old_after_ms"), [(30, 5, 600), (10, 900, 600), (1, 50, 1600)]
)
def test_what_counts_as_old(
    dashboard: Dashboard, rate_hz: int, delay_ms: int, old_after_ms: int
) -> None:
    """Old is what is older than usual, and than the time between two samples."""
    page = dashboard.open()
    period_ms = 1000 // rate_hz
    samples = [[delay_ms, (n + 1) * period_ms] for n in range(4)]
    last_ms = samples[-1][1]
    times = [last_ms, last_ms + old_after_ms - 1, last_ms + old_after_ms + 1]
    assert page.evaluate(_AGES, [rate_hz, samples, times]) == [False, False, True]


def test_a_sample_that_was_held_back_is_old_at_once(dashboard: Dashboard) -> None:
    """The first sample after a connection may be of long ago, and comes again with each one."""
    page = dashboard.open()
    again = [[60_000 + ms, 1] for ms in (0, 5000)]
    assert page.evaluate(_AGES, [10, again[:1], [2]]) == [True]
    assert page.evaluate(_AGES, [10, again, [2]]) == [True]
    clock = """async (messages) => {
        const { ServerClock } = await import('/static/ages.js');
        const clock = new ServerClock();
        return messages.map(([sent, now]) => now - clock.take(sent, now));
    }"""
    # Three messages take 5 ms; the fourth was under way for 3 s longer.
    came = [[1000, 5], [1250, 255], [1500, 505], [1750, 3755]]
    assert page.evaluate(clock, came) == [0, 0, 0, 3000]


@pytest.fixture(scope="module")
def gappy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight seconds: a camera of the first two, an IMU that was lost from 2 to 6 s."""
    builder = Builder(tmp_path_factory.mktemp("gap") / "gappy")
    builder.add(camera_spec(), seconds=2.0)
    numbers = [*range(200), *range(600, 800)]
    spec = imu_spec()
    made = builder.add(spec, seq=numbers, data={c.name: wave(numbers) for c in spec.channels})
    made.t_ns[200:] += 4_000_000_000
    (made.t_ns / 1e9).astype("<f8").tofile(builder.path / "imu" / "ts")
    mono = np.fromfile(builder.path / "imu" / "t_mono", "<u8")
    mono[200:] += 4_000_000_000
    mono.tofile(builder.path / "imu" / "t_mono")
    builder.lose("imu", first_seq=200, last_seq=599, duration_ns=4_000_000_000)
    return builder.close()


def wave(numbers: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """A first value that crosses the plot all the time, and two that are far from it."""
    first = np.where(np.arange(len(numbers)) % 2, 1.0, -1.0)
    return np.stack([first, first * 0, first * 0], axis=1).astype(np.float32)


def columns_with_a_line(picture: Picture) -> list[bool]:
    """By column of a plot, whether its first line is there."""
    near = np.abs(picture.astype(int) - BLUE).max(axis=2) < 60
    return [bool(column) for column in near[: picture.shape[0] * 3 // 4].any(axis=0)]


def test_playback_shows_no_old_picture_and_no_line_over_an_outage(
    browser: Browser, gappy: Path
) -> None:
    with viewing(gappy) as url:
        dashboard = Dashboard(browser, url, color_scheme="dark")
        page = dashboard.open()
        page.wait_for_selector("#playback[data-playing=false]")
        page.wait_for_selector(camera("fresh"))
        page.select_option("#speed", "2")
        page.keyboard.press(" ")
        page.wait_for_selector("#playback[data-playing=true]")
        page.wait_for_selector("#playback[data-playing=false]")  # at the end
        page.wait_for_selector(camera("covered"))
        assert "since" in page.inner_text(f"{camera('covered')} .cover")
        page.wait_for_selector(".panel[data-view=series][data-age=fresh]")
        page.click(".panel[data-view=series] [aria-label='Show large']")
        page.wait_for_selector(".panel.main[data-view=series]")
        page.wait_for_function(
            "() => document.querySelector('.panel.main .u-over').clientWidth >"
            " 0.7 * document.querySelector('.panel.main').clientWidth"
        )
        line = columns_with_a_line(dashboard.picture(".panel.main .u-over"))
        drawn = np.flatnonzero(line)
        second = len(line) / 30
        gaps = np.diff(drawn)
        assert gaps.max() == pytest.approx(4 * second, abs=second / 2), "from 2 to 6 s"
        assert (np.sort(gaps)[:-1] < second / 2).all(), "and no other"
        dashboard.close()


def seek(page: Page, seconds: float) -> None:
    """Click on the timeline of the eight seconds."""
    box = page.locator("#timeline canvas").bounding_box()
    assert box is not None
    before = position(page)
    place = box["x"] + 96 + seconds / 8 * (box["width"] - 108)
    page.touchscreen.tap(place, box["y"] + 30)
    page.wait_for_selector(f"#playback:not([data-t-ns='{before}'])")


def test_a_session_can_be_played_on_a_phone(browser: Browser, gappy: Path) -> None:
    with viewing(gappy) as url:
        size = {"width": 390, "height": 844}
        dashboard = Dashboard(browser, url, viewport=size, has_touch=True)
        page = dashboard.open()
        page.wait_for_selector("#playback[data-playing=false]")
        page.wait_for_selector(camera("fresh"))
        page.tap("#play")
        page.wait_for_selector("#playback[data-playing=true]")
        pause(page)
        seek(page, 1.0)
        page.wait_for_selector(camera("fresh"))
        seek(page, 7.0)
        page.wait_for_selector(camera("covered"))
        assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
        dashboard.close()
