"""Delay from capture to screen: the age of a sample when headless Chromium has drawn it.

``recorder serve`` records the rig load while Chromium, which renders in software, shows the
dashboard in its initial state.  Each sample's age is read when the page reports it as drawn, after
the frame with it was painted.  The benchmark needs `make browser`.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.frames import make_rig
from benchmarks.harness import Figure, Option, Run, Unavailable
from benchmarks.recording import run_daemon, wait_until

OPTIONS = {
    "seconds": Option("float", 10.0, "of each run", minimum=1),
    "rounds": Option("int", 3, "repetitions", minimum=1),
}
QUICK = {"seconds": 3.0, "rounds": 1}
_SETTLE_S = 5.0
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_WATCH = """
(() => {
  const stamps = new Map();
  window.drawnAges = {};
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) {
    if (!this.watched) {
      this.watched = true;
      this.addEventListener("message", (event) => {
        if (!(event.data instanceof ArrayBuffer)) return;
        const size = new DataView(event.data).getUint32(0, true);
        const header = JSON.parse(new TextDecoder().decode(new Uint8Array(event.data, 4, size)));
        if (!header.static) stamps.set(`${header.id}/${header.number}`, header);
      }, true);
    }
    const said = typeof data === "string" ? JSON.parse(data) : {};
    if (said.op === "drawn") {
      const key = `${said.id}/${said.number}`, header = stamps.get(key);
      stamps.delete(key);
      if (header) {
        const age = performance.timeOrigin + performance.now() - Number(header.t_ns) / 1e6;
        (window.drawnAges[`${header.stream} ${header.view}`] ??= []).push(age);
      }
    }
    return send.call(this, data);
  };
})();
"""


def watch(frames: Path, root: Path, seconds: float) -> dict[str, list[float]]:
    """Record and watch; return the ages by stream and view, ms."""
    chromium = next((path for name in _CHROMIUM if (path := shutil.which(name))), None)
    if chromium is None:
        raise Unavailable("no browser is installed; see `make browser`")
    with (
        run_daemon(frames, root, {"live": {"port": 0}}) as (_, client),
        sync_playwright() as playwright,
    ):
        url = wait_until(lambda: client.status().status["live"]["url"], "no live process")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.add_init_script(_WATCH)
        page.goto(url)
        client.start()
        time.sleep(_SETTLE_S)
        page.evaluate("window.drawnAges = {}")
        time.sleep(seconds)
        ages: dict[str, list[float]] = page.evaluate("window.drawnAges")
        browser.close()
        client.request("stop")
    return ages


def measure(run: Run) -> Iterator[Figure]:
    """Measure the ages of drawn samples, by view and over all."""
    frames = make_rig(run)
    ages = run.repeat(lambda folder: watch(frames, folder, run.options["seconds"]))
    for each in ages:
        each["all"] = [age for drawn in list(each.values()) for age in drawn]
    everything = [sorted(each["all"]) for each in ages]
    yield Figure("median", [statistics.median(drawn) for drawn in everything], "ms")
    late = [drawn[int(0.99 * (len(drawn) - 1))] for drawn in everything]
    yield Figure("p99", late, "ms")
    for name in sorted(set.intersection(*map(set, ages))):
        medians = [statistics.median(each[name]) for each in ages]
        yield Figure(f"{name}, median", medians, "ms")
        hz = [len(each[name]) / run.options["seconds"] for each in ages]
        yield Figure(f"{name}, drawn", hz, "1 / s")
