"""The system's Chromium, driven by playwright, and a dashboard to look at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.acceptance.command import here
from tests.browser.chromium import MISSING, find
from tests.browser.rig import PLAYED, Dashboard, Rig

# Tests run as root in containers, and without a graphics card.
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser; skips where there is none."""
    path = find()
    if path is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six seconds of simulated sensors."""
    folder = tmp_path_factory.mktemp("played")
    (folder / "rig.yaml").write_text(PLAYED)
    ran = here("run", folder / "rig.yaml", "--name", "drive", "--duration", 6, "--no-finalize")
    assert ran.code == 0, ran.err
    return folder / "sessions" / "drive"


@pytest.fixture(scope="module")
def served(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A daemon with simulated sensors; `rig` is the same between two tests."""
    rig = Rig(tmp_path_factory.mktemp("rig"))
    try:
        rig.start()
        yield rig
        rig.terminate()
    finally:
        rig.close()


@pytest.fixture
def rig(served: Rig) -> Iterator[Rig]:
    """A daemon that records nothing; of a test that fails its status and log are shown."""
    yield served
    print(json.dumps(dict(served.status()), indent=1), served.log, sep="\n")
    served.stop_session()


@pytest.fixture
def dashboard(browser: Browser, rig: Rig) -> Iterator[Dashboard]:
    """A page of a desktop; complaints of the page fail the test."""
    dashboard = Dashboard(browser, rig.url)
    yield dashboard
    dashboard.close()
