"""The dashboard on three sizes of screen; with ``--pictures FOLDER`` the pictures are kept.

Nothing may be cut off or lie on something else: texts fit into their boxes, and boxes beside each
other do not overlap.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import cv2
import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from tests.browser.rig import DESKTOP, Dashboard, Rig, viewing
from tests.browser.test_page import PHONE, TABLET

pytestmark = pytest.mark.browser

QUALITY = 88  # of WebP
SCREENS = {
    "desktop": (DESKTOP, ("dark", "light")),
    "tablet": (TABLET, ("light",)),
    "phone": (PHONE, ("dark",)),
}

# Elements whose text is wider than they are, unless they end in an ellipsis on purpose.
_CUT = """() => [...document.querySelectorAll('#bar b, #bar span, .row span, h2, button, th')]
    .filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1
        && getComputedStyle(e).display !== 'inline'
        && getComputedStyle(e).textOverflow !== 'ellipsis')
    .map(e => e.outerHTML.slice(0, 120))"""
# Pairs of neighbours that lie on each other.
_OVERLAPS = """() => {
    const found = [];
    const groups = ['#bar > *', '#bar b, #bar span, #bar small, #bar button', '.row', '.panel',
        '#below > section', 'main > section'];
    for (const group of groups) {
        const boxes = [...document.querySelectorAll(group)].filter(e => e.checkVisibility());
        boxes.forEach((a, n) => boxes.slice(n + 1).forEach((b) => {
            const [p, q] = [a.getBoundingClientRect(), b.getBoundingClientRect()];
            const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
            const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
            if (across > 1 && down > 1 && !a.contains(b))
                found.push([a, b].map(e => e.outerHTML.slice(0, 80)));
        }));
    }
    return found;
}"""

# A rig that keeps up: all streams are good, and all that is on the screen is of now.
_KEEPS_UP = """() => document.body.dataset.live === 'yes'
    && !document.querySelector('.row:not([data-level=good])')
    && [...document.querySelectorAll('.panel[data-drawn]')].every(e => e.dataset.age === 'fresh'
        || e.getBoundingClientRect().top > innerHeight || !e.checkVisibility())"""


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path | None:
    """Where pictures go; None where they are not kept."""
    kept = request.config.getoption("--pictures", default=None)
    return Path(kept) if kept else None


def take(page: Page, folder: Path | None, name: str) -> None:
    """Check that everything has its place; keep a picture of a rig that keeps up."""
    assert page.evaluate(_CUT) == []
    assert page.evaluate(_OVERLAPS) == []
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") == 0
    if folder is None:
        return
    page.wait_for_function(_KEEPS_UP)
    shot = cv2.imdecode(np.frombuffer(page.screenshot(), np.uint8), cv2.IMREAD_COLOR)
    assert shot is not None
    cv2.imwrite(str(folder / f"{name}.webp"), shot, [cv2.IMWRITE_WEBP_QUALITY, QUALITY])


@pytest.mark.parametrize("screen", SCREENS)
def test_the_dashboard_fits_its_screen(
    browser: Browser, rig: Rig, folder: Path | None, screen: str
) -> None:
    size, themes = SCREENS[screen]
    dashboard = Dashboard(browser, rig.url, viewport=size, color_scheme=themes[0])
    page = dashboard.open()
    dashboard.start(f"drive_{screen}")
    page.wait_for_selector("#events li", state="attached")
    later = 1 if folder is None else 10  # a picture shows a recording of 20 s
    dashboard.drawn("camera", "picture", after=6 * later)
    page.keyboard.press("m")
    page.wait_for_selector("#timeline canvas[data-marks='1']", state="attached")
    dashboard.drawn("camera", "picture", after=20 * later)
    page.wait_for_selector("#toast", state="hidden")
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        dashboard.drawn("camera", "picture", after=dashboard.drawn("camera", "picture") + later)
        take(page, folder, f"dashboard-{screen}-{theme}")
    dashboard.close()


SIZES = [(390, 844), (600, 960), (768, 1024), (844, 390), (900, 700), (1024, 768), (1440, 900)]
_LONGEST = """() => {
    document.querySelector('#rec-word').textContent = 'RECORDING';
    document.querySelector('#elapsed').textContent = '123:45:57';
    document.querySelector('#session').textContent = 'a_drive_with_a_long_name_p0012 · FAIL';
    document.querySelector('#verdict b').textContent = 'UNDECLARED';
    document.querySelector('#why').textContent =
        'camera_front_left: the device is lost; lidar_top: 4.53 Hz is too slow; radar: absent; '
            .repeat(2);
    document.querySelector('#disk b').textContent = '> 999 h';
}"""


@pytest.mark.parametrize("mode", ["live", "playback"])
def test_nothing_overlaps_at_any_width(
    browser: Browser, rig: Rig, recorded: Path, mode: str
) -> None:
    with viewing(recorded) if mode == "playback" else nullcontext(rig.url) as url:
        dashboard = Dashboard(browser, url)
        page = dashboard.open()
        page.wait_for_selector("#streams .row")
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            page.evaluate(_LONGEST)
            where = f"at {width} px"
            assert page.evaluate(_CUT) == [], where
            assert page.evaluate(_OVERLAPS) == [], where
            wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wider == 0, where
            assert page.locator("#why").is_visible(), where
            assert page.locator("#play").is_visible() == (mode == "playback"), where
        dashboard.close()


def test_playback_fits_its_screen(browser: Browser, recorded: Path, folder: Path | None) -> None:
    with viewing(recorded) as url:
        dashboard = Dashboard(browser, url, color_scheme="dark")
        page = dashboard.open()
        page.wait_for_selector("#playback[data-playing=false]")
        page.keyboard.press(" ")
        dashboard.drawn("camera", "picture", after=45)
        dashboard.drawn("imu", "series")
        page.keyboard.press(" ")
        page.wait_for_selector("#playback[data-playing=false]")
        take(page, folder, "dashboard-playback")
        dashboard.close()
