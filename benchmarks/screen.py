"""From capture to screen: ``python -m benchmarks.screen [--seconds 10] [--rounds 3]``.

The rig load is recorded by ``recorder serve`` while headless Chromium, which renders in software,
shows the dashboard as it opens.  Each sample's age is taken when the page reports it as drawn,
which is after the frame with it was painted.  Needs `make browser`.  See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from benchmarks.frames import RECORDINGS, make_frames
from benchmarks.live import served, wait_until
from benchmarks.rig import BenchmarkError

MEDIAN_MS: Final = 300.0
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


def run(frames: Path, root: Path, seconds: float) -> dict[str, list[float]]:
    """Record, and look; ages by stream and view, ms."""
    chromium = next((path for name in _CHROMIUM if (path := shutil.which(name))), None)
    if chromium is None:
        raise BenchmarkError("no browser is installed; see `make browser`")
    with served(frames, root, live=True) as (_, client), sync_playwright() as playwright:
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


def text_report(runs: list[dict[str, list[float]]], seconds: float) -> str:
    """Medians of the runs and their spread, by view and over all of them."""
    names = sorted({name for ages in runs for name in ages})
    lines = [f"{'':22}{'a second':>10}{'median, ms':>22}{'p99, ms':>22}"]
    for name in [*names, "all"]:
        each = [[a for n, ages in run.items() if name in (n, "all") for a in ages] for run in runs]
        found = [sorted(ages) for ages in each if ages]
        hz = statistics.median(len(ages) / seconds for ages in found)
        middle = _cell([statistics.median(ages) for ages in found])
        late = _cell([ages[int(0.99 * (len(ages) - 1))] for ages in found])
        lines.append(f"{name:22}{hz:10.1f}{middle:>22}{late:>22}")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def main() -> int:
    """0, or 1 where the median is not below `MEDIAN_MS`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screen", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a run (10)")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions (3)")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="screen-"))
    runs: list[dict[str, Any]] = []
    try:
        (frames := root / "frames").mkdir()
        make_frames(frames, RECORDINGS)
        for turn in range(args.rounds):
            print(f"round {turn + 1} ...", file=sys.stderr, flush=True)
            folder = Path(tempfile.mkdtemp(dir=root))
            runs.append(run(frames, folder, args.seconds))
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(root)
    print(text_report(runs, args.seconds))
    medians = [statistics.median([a for ages in one.values() for a in ages]) for one in runs]
    holds = statistics.median(medians) < MEDIAN_MS
    print(f"{'holds' if holds else 'MISSED':8} median over all below {MEDIAN_MS:g} ms")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
