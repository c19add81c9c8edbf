"""A daemon with simulated sensors and its dashboard, and what a test sees of the page."""

from __future__ import annotations

import json
import re
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, TimeoutError, WebSocket

from tests.recording.daemon.served import Served
from tests.support.waiting import wait_until
from tests.viewers.live import test_view

Picture = npt.NDArray[np.uint8]

CHIRP = """{device: AWR1843, frequency: 77.0, idle_time: 6.0, adc_start_time: 5.7,
      ramp_end_time: 34.0, freq_slope: 30.0, adc_samples: 256, sample_rate: 10000,
      frame_length: 32, frame_period: 200.0}"""
CONFIG = """
version: 1
session: {{root: sessions, name: drive}}
sensors:
  camera: {{driver: camera, source: "sim:", width: 640, height: 360, fps: 10}}
  lidar: {{driver: ouster, source: "sim:", mode: 512x10, beams: 64, imu: false, compression: raw}}
  radar:
    driver: mmwave
    source: "sim:"
    radar: {chirp}
  imu: {{driver: xsens, source: "sim:", rate: 50, model: MTi-680G}}
storage: {{min_free_gb: 0.1}}
live: {{port: {port}}}
"""
PLAYED = f"""
version: 1
session: {{root: sessions}}
sensors:
  camera: {{driver: camera, source: "sim:", width: 640, height: 360, fps: 10, pace: max}}
  lidar: {{driver: ouster, source: "sim:", mode: 512x10, beams: 64, imu: false, compression: raw,
    pace: max}}
  radar:
    driver: mmwave
    source: "sim:"
    pace: max
    radar: {CHIRP}
  imu: {{driver: xsens, source: "sim:", rate: 50, pace: max}}
storage: {{min_free_gb: 0.1}}
"""
STREAMS = {"camera", "lidar", "radar", "imu", "imu_gnss"}
PATIENCE_MS = 60_000
# Where the page stands: what it shows, and whether the browser still asks it for frames.
_SEEN = """() => new Promise((resolve) => {
    const seen = {
        visibility: document.visibilityState,
        connection: document.body.dataset.connection,
        bar: document.querySelector('#bar').innerText,
        rows: [...document.querySelectorAll('.row')].map(e => e.innerText.replaceAll('\\n', ' ')),
        panels: [...document.querySelectorAll('.panel')].map(e => [e.dataset.stream,
            e.dataset.view, e.checkVisibility(), e.querySelector('.data')?.dataset.seq,
            e.getBoundingClientRect().top, e.querySelector('footer').innerText]),
    };
    requestAnimationFrame(() => resolve({...seen, frames: true}));
    setTimeout(() => resolve({...seen, frames: false}), 5000);
})"""
# A busy machine shows old samples, which are grey.
_AS_DRAWN = """() => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('main, .panel .body { filter: none !important } '
        + '.cover { display: none !important }');
    document.adoptedStyleSheets = [sheet];
}"""
DESKTOP = {"width": 1440, "height": 900}


class Rig(Served):
    """A daemon of simulated sensors; `url` is its dashboard."""

    def __init__(self, folder: Path) -> None:
        port = free_port()  # fixed, so that pages find a live process that was started again
        super().__init__(folder, CONFIG.format(chirp=CHIRP, port=port))
        self.url = f"http://127.0.0.1:{port}/"

    def start(self) -> None:
        super().start()
        wait_until("the dashboard is served", lambda: self.status()["live"]["url"])

    def stop_session(self) -> None:
        """Stop what a test has left recording."""
        if self.status()["session"] is not None:
            self.request("stop")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def viewing(session: Path) -> Iterator[str]:
    """Address of `recorder view`."""
    with test_view.viewing(session, "--no-browser") as result:
        yield result["url"]


class Dashboard:
    """A page in a browser of its own; `close` fails if the page complained or asked elsewhere."""

    def __init__(self, browser: Browser, url: str, **context: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESKTOP, **context})
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.url = url
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("websocket", lambda opened: self.requests.append(opened.url))
        self.exchanged: deque[str] = deque(maxlen=40)
        self.page.on("websocket", self._watch)

    def open(self) -> Page:
        """Load the dashboard; returns when it has the daemon's status."""
        self.page.goto(self.url)
        self.page.wait_for_selector("#verdict[data-level]:not([data-level=unknown])")
        return self.page

    def start(self, name: str) -> None:
        """Start a session by the keyboard."""
        self.page.keyboard.press("s")
        self.page.keyboard.type(name)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("body[data-recording=true]")

    def stop(self) -> None:
        """Stop the session by the keyboard."""
        self.page.keyboard.press("s")
        self.page.wait_for_selector("#stop-dialog[open]")
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("body[data-recording=false]")

    def canvas(self, stream: str, view: str) -> str:
        """Selector of what shows a view of a stream."""
        return f".panel[data-stream={stream}][data-view={view}] .data"

    def drawn(self, stream: str, view: str, after: int = -1) -> int:
        """Wait until a sample after `after` is on the screen; its number."""
        selector = self.canvas(stream, view)
        try:
            self.page.wait_for_function(
                "([selector, after]) => Number(document.querySelector(selector)?.dataset.seq ?? -1)"
                " > after",
                arg=[selector, after],
            )
        except TimeoutError:
            pytest.fail(f"{stream}/{view}: nothing was drawn after {after}; {self._seen()}")
        return int(self.page.get_attribute(selector, "data-seq") or -1)

    def picture(self, selector: str) -> Picture:
        """What was drawn where an element is, however old it is, BGR [height, width, 3]."""
        self.page.evaluate(_AS_DRAWN)
        png = self.page.locator(selector).screenshot()
        self.page.evaluate("document.adoptedStyleSheets = []")
        return np.asarray(cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR))

    def close(self, expected: str | None = None) -> None:
        """Close the page.

        Args:
            expected: pattern of complaints of the browser that the test brings about.
        """
        self.context.close()
        complaints = [c for c in self.complaints if not (expected and re.search(expected, c))]
        assert not complaints, complaints
        asked = {urlsplit(url).netloc for url in self.requests}
        assert asked <= {urlsplit(self.url).netloc}, self.requests

    def _seen(self) -> str:
        """What is on the page, and what went over its connection last."""
        page: dict[str, Any] = self.page.evaluate(_SEEN)
        return json.dumps({**page, "exchanged": list(self.exchanged)}, indent=1)

    def _watch(self, socket: WebSocket) -> None:
        """Keep the last messages, of a binary one its header."""

        def keep(way: str, data: str | bytes) -> None:
            if isinstance(data, bytes):
                data = data[4 : 4 + int.from_bytes(data[:4], "little")].decode()
            self.exchanged.append(f"{time.monotonic():.3f} {way} {data[:300]}")

        socket.on("framesent", lambda data: keep("to", data))
        socket.on("framereceived", lambda data: keep("from", data))
        socket.on("close", lambda _: keep("from", "closed"))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)
