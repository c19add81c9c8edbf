"""The browser can do what the dashboard asks of it, also without a graphics card."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

DRAW = """() => {
    const gl = document.createElement("canvas").getContext("webgl2");
    gl.clearColor(0.2, 0.4, 0.6, 1.0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const pixel = new Uint8Array(4);
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
    return Array.from(pixel);
}"""


def test_the_browser_draws_with_webgl2(browser: Browser) -> None:
    page = browser.new_page()
    assert page.evaluate(DRAW) == [51, 102, 153, 255]
    page.close()
