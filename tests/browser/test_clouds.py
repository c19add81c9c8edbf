"""Lidars that are recorded as points, and as ranges in the packets' unit, in the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from tests.acceptance.command import here
from tests.browser.rig import Dashboard, viewing
from tests.browser.test_playback import pause, shows
from tests.browser.test_views import colourful

pytestmark = pytest.mark.browser

RIG = """
version: 1
session: {root: sessions}
sensors:
  lidar: {driver: lidar, source: "sim:", pace: max}
  roof: {driver: hesai, source: "sim:", model: PandarXT32, pace: max}
storage: {min_free_gb: 0.1}
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clouds")
    (folder / "rig.yaml").write_text(RIG)
    ran = here("run", folder / "rig.yaml", "--name", "drive", "--duration", 2, "--no-finalize")
    assert ran.code == 0, ran.err
    return folder / "sessions" / "drive"


@pytest.fixture
def played(browser: Browser, session: Path) -> Iterator[Dashboard]:
    with viewing(session) as url:
        dashboard = Dashboard(browser, url)
        dashboard.open()
        dashboard.page.wait_for_selector("body[data-mode=playback] #playback[data-t-ns]")
        yield dashboard
        dashboard.close()


def test_points_are_drawn_in_3d_and_from_above(played: Dashboard) -> None:
    page = played.page
    pause(page)
    page.keyboard.press("End")
    pictures = {}
    for view in ("cloud", "cloud_above"):
        shows(played, "lidar", view, 19)
        pictures[view] = played.picture(played.canvas("lidar", view))
        assert colourful(pictures[view]) > 500, view
        footer = page.inner_text(f".panel[data-stream=lidar][data-view={view}] footer")
        assert "points" in footer
    canvas, panel = played.canvas("lidar", "cloud"), ".panel[data-stream=lidar][data-view=cloud]"
    page.locator(f"{panel} .controls select").select_option("intensity")
    by_intensity = played.picture(canvas)
    assert (by_intensity != pictures["cloud"]).any()
    page.focus(canvas)
    page.keyboard.press("ArrowLeft")
    assert (played.picture(canvas) != by_intensity).any()


def test_ranges_are_drawn_in_3d_and_as_a_range_image(played: Dashboard) -> None:
    pause(played.page)
    played.page.keyboard.press("End")
    for view in ("cloud", "beam_image"):
        shows(played, "roof", view, 18)
        assert colourful(played.picture(played.canvas("roof", view))) > 500, view


def test_another_sweep_is_another_picture(played: Dashboard) -> None:
    page = played.page
    pause(page)
    canvas = played.canvas("lidar", "cloud_above")
    page.keyboard.press("End")
    shows(played, "lidar", "cloud_above", 19)
    last = played.picture(canvas)
    page.keyboard.press("ArrowLeft")
    shows(played, "lidar", "cloud_above", 18)
    assert np.abs(played.picture(canvas).astype(int) - last).max() > 60
