"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from drivers.ouster.sdk import provide_library
from tests import campaigns

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # others would spin between two matrices
provide_library("libGL.so.1")  # before a test module imports ouster-sdk: see there

pytest_plugins = ["tests.durations"]

SHARED_DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"

# Derandomized: a failure seen once is seen by everybody, and no run depends on luck.
_ALWAYS = settings(
    derandomize=True,
    deadline=None,
    # A busy machine is slow, and no test is to depend on that.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("fast", _ALWAYS, max_examples=15)
settings.register_profile("campaign", _ALWAYS, max_examples=100)

TESTS = Path(__file__).parent
APART = ("conformance", "browser")
"""Folders and markers of the tests that need more than `make test` installs."""
MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 4 << 30  # free there, for tests to lie in it


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the budget of the campaigns, and the folder of ``make pictures``."""
    campaigns.add_options(parser)
    parser.addoption("--pictures", metavar="FOLDER", help="keep the pictures of the documents")


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples are tried, and where the tests' folders lie."""
    campaigns.begin(config)
    # A job of a shell in the background ignores SIGINT, and all that it starts with it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("campaign" if _is_campaign(config) else "fast")
    # Syncs wait for the disk, and many tests do little else.
    bounded = "not long" in config.option.markexpr or _is_campaign(config)
    if bounded and _has_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    # Not the user's: tests make drivers, and ask them for their schemas.
    os.environ["XDG_CACHE_HOME"] = str(TESTS.parent / ".pytest_cache" / "user")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what imports third-party packages where none of it would run."""
    if collection_path.parent != TESTS or (name := collection_path.name) not in APART:
        return None
    return True if f"not {name}" in config.option.markexpr or _is_campaign(config) else None


def _is_apart(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in APART)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A campaign tries every property once more, with many examples, on what is installed."""
    if not _is_campaign(config):
        if hasattr(config, "workerinput"):
            _spread(items)
        return
    config.hook.pytest_deselected(items=[item for item in items if _is_apart(item)])
    items[:] = [item for item in items if not _is_apart(item)]
    for item in items:
        if campaigns.is_property(item) or campaigns.is_selective(item):
            item.add_marker(campaigns.MARK)
    campaigns.choose(config, items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Share the campaigns' time out over those that were collected."""
    campaigns.collected(session)
    # Thousands of tests are in memory, and the collector would look at all of them again and again.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist when the run began."""
    campaigns.tell_worker(node)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the base seed."""
    return campaigns.header(config) if _is_campaign(config) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many seeds each campaign did."""
    campaigns.summary(terminalreporter)


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Iterator[campaigns.Campaign | None]:
    """The loop of a campaign test over its seeds; None in a test that is no campaign."""
    yield from campaigns.of_test(request)


@pytest.fixture
def select(request: pytest.FixtureRequest) -> campaigns.Selector:
    """The selection of an exhaustive loop's values; in a campaign, the part that is to be done."""
    part = request.config.option.campaign_part if _is_campaign(request.config) else 0.0
    return campaigns.Selector(request.node.nodeid, part)


def _spread(items: list[pytest.Item]) -> None:
    """Sort the files so that those of a folder lie apart: their tests wait alike, or compute.

    So workers of pytest-xdist that wait run beside others that compute.
    """
    folders: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(item.path for item in items):
        folders.setdefault(path.parent, []).append(path)
    place = {path: k / len(paths) for paths in folders.values() for k, path in enumerate(paths)}
    items.sort(key=lambda item: place[item.path])


def _is_campaign(config: pytest.Config) -> bool:
    return str(config.option.markexpr).strip() == "campaign"


def _has_memory() -> bool:
    return os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= _MEMORY_BYTES


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real recordings beside the project; skips where it is not."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs ../shared/data (real recordings), which is not beside this clone")
    return SHARED_DATA
