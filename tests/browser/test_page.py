"""The page itself: by keys alone, on a phone, in two themes, and who gets nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, WebSocket

from tests.browser.rig import STREAMS, Dashboard, Rig

pytestmark = pytest.mark.browser

TOKEN = "a-password-for-the-tests"
PHONE = {"width": 390, "height": 844}
TABLET = {"width": 1024, "height": 768}
_EVIL = "http://evil.example/"


def main_panel(page: Page) -> str:
    dataset = page.locator(".panel.main").evaluate("panel => panel.dataset")
    return f"{dataset['stream']}/{dataset['view']}"


def test_keys_alone(dashboard: Dashboard, rig: Rig) -> None:
    page = dashboard.open()
    page.keyboard.press("s")
    page.wait_for_selector("#start-dialog[open]")
    page.keyboard.type("keys")
    page.keyboard.press("Enter")
    page.wait_for_selector("body[data-recording=true]")
    assert rig.status()["session"]["name"] == "keys"
    dashboard.drawn("camera", "picture")
    assert main_panel(page) == "camera/picture"

    number = page.inner_text(".row[data-stream=lidar] kbd")
    page.keyboard.press(number)
    assert main_panel(page) == "lidar/points"
    page.keyboard.press(number)
    assert main_panel(page) == "lidar/above"
    assert page.locator(".row[aria-pressed=true]").get_attribute("data-stream") == "lidar"
    page.keyboard.press("?")
    page.wait_for_selector("#help-dialog[open]")
    page.keyboard.press("Escape")

    # The focus goes through the page, and can be seen.
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "() => { const e = document.activeElement; const s = getComputedStyle(e);"
            " return [e.id || e.dataset.stream || e.className || e.tagName, s.outlineStyle] }"
        )
        seen.add(focused[0])
        if focused[0] != "BODY":
            assert focused[1] != "none", focused
    assert {"mark", "start-stop", "theme", *STREAMS} <= seen

    page.keyboard.press("s")
    page.wait_for_selector("#stop-dialog[open]")
    page.keyboard.press("Escape")  # goes on
    assert rig.status()["session"] is not None
    dashboard.stop()


def test_layout_and_theme_are_kept_per_browser(dashboard: Dashboard) -> None:
    page = dashboard.open()
    dashboard.start("kept")
    page.click(".panel[data-stream=radar][data-view=range_doppler] [aria-label='Show large']")
    page.click(".panel[data-stream=imu] [aria-label=Close]")
    page.select_option(".panel[data-view=points] [aria-label='Colour by']", "range")
    page.wait_for_selector(".panel[data-view=points] .legend:has-text('m range')")
    background = "getComputedStyle(document.body).backgroundColor"
    colours = {page.evaluate(background)}
    for _ in range(2):
        page.keyboard.press("t")
        colours.add(page.evaluate(background))
    assert len(colours) == 2
    assert page.locator("html").get_attribute("data-theme") == "light"
    dashboard.open()  # once more
    page.wait_for_selector(".panel.main[data-view=range_doppler]")
    assert page.locator(".panel[data-stream=imu]").count() == 0
    assert page.locator("[aria-label='Colour by']").first.input_value() == "range"
    assert page.locator("html").get_attribute("data-theme") == "light"
    page.click("#reset-layout")
    page.wait_for_selector(".panel.main[data-stream=camera]")
    assert page.locator(".panel[data-stream=imu]").count() == 1


@pytest.mark.parametrize("size", [PHONE, TABLET], ids=["phone", "tablet"])
def test_smaller_screens(browser: Browser, rig: Rig, size: dict[str, int]) -> None:
    dashboard = Dashboard(browser, rig.url, viewport=size, has_touch=True)
    watched: dict[int, str] = {}  # while streams come, others may be watched for a moment

    def sent(data: bytes | str) -> None:
        message = json.loads(data)
        if message["op"] == "watch":
            watched[message["id"]] = f"{message['stream']}/{message['view']}"
        elif message["op"] == "unwatch":
            del watched[message["id"]]

    def opened(socket: WebSocket) -> None:
        socket.on("framesent", sent)

    dashboard.page.on("websocket", opened)
    page = dashboard.open()
    dashboard.start(f"width_{size['width']}")
    dashboard.drawn("camera", "picture")
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    for selector in (
        "#mark",
        "#start-stop",
        "#verdict",
        "#disk",
        *(f".row[data-stream={s}]" for s in STREAMS),
    ):
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert box["x"] >= 0 and box["x"] + box["width"] <= size["width"]
    if size is PHONE:
        page.tap(".row[data-stream=camera]")  # all streams are there
        dashboard.drawn("camera", "picture", after=dashboard.drawn("camera", "picture"))
        assert page.locator(".panel:visible").count() == 1
        assert set(watched.values()) == {"camera/picture"}  # what is hidden costs nothing
        page.tap(".row[data-stream=radar]")
        dashboard.drawn("radar", "range_doppler")
        assert set(watched.values()) == {"radar/range_doppler"}
    page.tap("#mark")
    page.wait_for_selector("#toast:has-text('Marked at')")
    dashboard.close()


def test_nothing_is_loaded_from_elsewhere(dashboard: Dashboard) -> None:
    page = dashboard.open()
    dashboard.start("local")
    dashboard.drawn("camera", "picture")
    assert len(dashboard.requests) > 10  # `Dashboard.close` looks where they went
    names = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert names
    assert all(name.startswith(dashboard.url) for name in names)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """Address of a live process that asks for a token; it has no daemon."""
    request = {
        "socket": str(tmp_path / "none.sock"),
        "live": {"port": 0, "token": TOKEN},
        "root": str(tmp_path),
        "calibration": None,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "recorder.viewers.live"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


_CONNECT = """url => new Promise(resolve => {
    const socket = new WebSocket(url);
    socket.onmessage = ({ data }) => resolve(data);
    socket.onclose = () => resolve(null);
})"""


def test_without_the_token_there_is_nothing(browser: Browser, guarded: str) -> None:
    socket = f"{guarded.replace('http', 'ws')}live"
    dashboard = Dashboard(browser, guarded)
    page = dashboard.page
    response = page.goto(guarded)
    assert response is not None and response.status == 401
    assert page.locator("#bar").count() == 0
    assert page.evaluate(_CONNECT, socket) is None

    page.fill("input[name=token]", TOKEN)
    page.click("button")
    page.wait_for_selector("#verdict[data-level=bad]:has-text('OFFLINE')")
    assert TOKEN not in page.url
    assert TOKEN not in page.content()
    assert json.loads(page.evaluate(_CONNECT, socket))["type"] == "hello"
    dashboard.close(expected="401|404|WebSocket connection")


def test_a_page_of_another_origin_gets_nothing(browser: Browser, guarded: str) -> None:
    dashboard = Dashboard(browser, guarded)
    page = dashboard.page
    page.goto(f"{guarded}?token={TOKEN}")  # this browser has the cookie
    page.wait_for_selector("#verdict[data-level=bad]")
    page.route(_EVIL, lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
    page.goto(_EVIL)
    assert page.evaluate(_CONNECT, f"{guarded.replace('http', 'ws')}live") is None
    assert (
        page.evaluate("url => fetch(url).then(() => 'read', () => 'refused')", guarded) == "refused"
    )
    dashboard.requests = [url for url in dashboard.requests if url != _EVIL]
    dashboard.close(expected="401|403|404|CORS|WebSocket connection|ERR_FAILED")


def test_an_event_is_kept_from_the_page(dashboard: Dashboard) -> None:
    page = dashboard.open()
    dashboard.start("event")
    page.keyboard.press("Shift+M")
    page.fill("#mark-dialog label input:not([type])", "pothole")
    page.check("#keep-event")
    page.fill("#keep-before", "2")
    page.fill("#keep-after", "0.5")
    page.click("#mark-dialog button.first")
    page.wait_for_selector("#toast:has-text('Kept as an event at')")
