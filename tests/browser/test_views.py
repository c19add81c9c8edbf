"""What is on the screen is what the sensors see, and one sample at a time is on its way there."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter

import numpy as np
import pytest
import yaml
from playwright.sync_api import WebSocket

from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.model import SimulatedRadar
from tests.browser.rig import CHIRP, STREAMS, Dashboard, Picture

pytestmark = pytest.mark.browser

_EDGE = 3
VIEWS = {
    "camera": {"picture"},
    "lidar": {"points", "above", "range_image"},
    "radar": {"range_doppler", "range_azimuth"},
    "imu": {"series"},
    "imu_gnss": {"track"},
}


def colourful(picture: Picture) -> int:
    """Pixels that are no grey: those of a map of colours, not of axes, circles and texts."""
    spread = picture.max(axis=2).astype(int) - picture.min(axis=2)
    return int((spread > 60).sum())


def test_every_view_of_every_stream_is_drawn(dashboard: Dashboard) -> None:
    page = dashboard.open()
    dashboard.start("all")
    page.wait_for_function(
        "count => document.querySelectorAll('.panel[data-drawn]').length === count",
        arg=sum(map(len, VIEWS.values())),
    )
    shown: dict[str, set[str]] = {}
    for panel in page.locator(".panel").evaluate_all("panels => panels.map(p => p.dataset)"):
        shown.setdefault(panel["stream"], set()).add(panel["view"])
    assert shown == VIEWS
    assert set(shown) == STREAMS
    for stream, views in VIEWS.items():
        for view in views:
            canvas = page.locator(dashboard.canvas(stream, view))
            assert int(canvas.get_attribute("data-t-ns") or 0) > 0
            assert canvas.get_attribute("aria-label")


def test_the_picture_moves(dashboard: Dashboard) -> None:
    dashboard.open()
    dashboard.start("moving")
    canvas = dashboard.canvas("camera", "picture")
    dashboard.drawn("camera", "picture", after=5)
    before = dashboard.picture(canvas)
    seq = dashboard.drawn("camera", "picture")  # of now: the picture was taken before
    dashboard.drawn("camera", "picture", after=seq + 20)
    after = dashboard.picture(canvas)
    assert before.shape == after.shape
    changed = (np.abs(before.astype(int) - after).max(axis=2) > 30).mean()
    assert changed > 0.01
    assert before.std() > 20


def test_points_are_not_blank(dashboard: Dashboard) -> None:
    page = dashboard.open()
    dashboard.start("points")
    for view in VIEWS["lidar"]:
        dashboard.drawn("lidar", view)
        assert colourful(dashboard.picture(dashboard.canvas("lidar", view))) > 500, view
    assert "rays" in page.inner_text(".panel[data-view=points] footer")


def test_the_view_in_3d_turns_by_mouse_and_keys(dashboard: Dashboard) -> None:
    page = dashboard.open()
    dashboard.start("turned")
    dashboard.drawn("lidar", "points")
    dashboard.stop()  # what changes now changes by the view
    canvas = dashboard.canvas("lidar", "points")
    page.focus(canvas)
    pictures = [dashboard.picture(canvas)]
    for key in ("ArrowLeft", "ArrowUp", "+"):
        page.keyboard.press(key)
        pictures.append(dashboard.picture(canvas))
    box = page.locator(canvas).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y + 20)
    page.mouse.up()
    pictures.append(dashboard.picture(canvas))
    page.mouse.wheel(0, 300)
    pictures.append(dashboard.picture(canvas))
    for before, after in itertools.pairwise(pictures):
        assert (before != after).any()
    page.keyboard.press("0")
    np.testing.assert_array_equal(dashboard.picture(canvas), pictures[0])


def test_the_radars_peak_is_a_simulated_target(dashboard: Dashboard) -> None:
    """The brightest pixel of the map lies at the range and speed of a loud target."""
    page = dashboard.open()
    dashboard.start("radar")
    page.click(".panel[data-view=range_doppler] button[aria-label='Show large']")
    canvas = dashboard.canvas("radar", "range_doppler")
    first = dashboard.drawn("radar", "range_doppler", after=5)
    picture = dashboard.picture(canvas)
    last = dashboard.drawn("radar", "range_doppler")
    yellow = picture[..., 1:].min(axis=2)  # circles around targets are blue
    yellow[:_EDGE] = yellow[-_EDGE:] = yellow[:, :_EDGE] = yellow[:, -_EDGE:] = 0  # of the panel
    assert yellow.max() > 240 > 5 * np.median(yellow)
    y, x = np.unravel_index(yellow.argmax(), yellow.shape)
    page.hover(canvas, position={"x": int(x), "y": int(y)})
    shown = page.inner_text(".panel[data-view=range_doppler] .readout")
    found = re.match(r"([\d.]+) m, ([+-]?[\d.]+) m/s, ", shown)
    assert found is not None, shown
    range_m, speed_m_s = map(float, found.groups())

    chirp = ChirpConfig(**yaml.safe_load(CHIRP))
    radar = SimulatedRadar(chirp, "qqii", seed=0)
    frames = [radar.targets(index) for index in range(first, last + 2)]
    loud = [t for frame in frames for t in frame if t.amplitude > frame[0].amplitude / 4]
    assert any(
        abs(target.range_m - range_m) < 2.5 * chirp.range_resolution
        and abs(wrapped(target.velocity_mps - speed_m_s, 2 * chirp.max_doppler))
        < 2.5 * chirp.doppler_resolution
        for target in loud
    ), (shown, first, last, [(t.range_m, t.velocity_mps, t.amplitude) for t in loud])


def wrapped(value: float, period: float) -> float:
    return (value + period / 2) % period - period / 2


def test_one_sample_of_a_watch_is_on_its_way_at_a_time(dashboard: Dashboard) -> None:
    waiting: Counter[int] = Counter()
    most: Counter[int] = Counter()

    def received(data: bytes | str) -> None:
        if isinstance(data, bytes):
            header = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
            if not header["static"]:
                waiting[header["id"]] += 1
                most[header["id"]] = max(most[header["id"]], waiting[header["id"]])

    def sent(data: bytes | str) -> None:
        message = json.loads(data)
        if message["op"] == "drawn":
            waiting[message["id"]] -= 1

    def opened(socket: WebSocket) -> None:
        socket.on("framereceived", received)
        socket.on("framesent", sent)

    dashboard.page.on("websocket", opened)
    dashboard.open()
    dashboard.start("paced")
    dashboard.drawn("camera", "picture", after=30)
    assert len(most) >= 5
    assert set(most.values()) == {1}
