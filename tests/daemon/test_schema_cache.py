"""Schemas that are kept from one start to the next are those that the driver would answer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.contract.errors import ConfigError
from recorder.daemon import driver_registry
from recorder.daemon.driver_registry import available_drivers, driver_schema, prefetch
from recorder.daemon.schema_cache import SchemaCache, cache_folder

DRIVER = """
import json
from pathlib import Path
from own_options import OPTIONS
from recorder.contract.config.driver_schema import loaded_files
with (Path(__file__).parent / "calls").open("a") as file:
    file.write("x")
print(json.dumps({"name": "own", "schemes": {"sim": ""}, "options": OPTIONS, "files": FILES}))
"""
OPTIONS = 'OPTIONS = {"fps": {"type": "float", "default": 10.0}}\n'


class Place:
    """A folder with the driver ``own.driver`` and a cache."""

    def __init__(self, folder: Path) -> None:
        self.driver = folder / "path" / "own" / "driver.py"
        self.options = folder / "path" / "own_options.py"
        self.cache = folder / "cache"
        self.entry = self.cache / "driver-own.driver.json"
        self.driver.parent.mkdir(parents=True)
        (self.driver.parent / "__init__.py").touch()
        self.driver.write_text(DRIVER.replace("FILES", "loaded_files()"))
        self.options.write_text(OPTIONS)

    @property
    def calls(self) -> int:
        return len((self.driver.parent / "calls").read_text())

    def ask(self) -> float:
        """The default of the option ``fps``, as the next start of the recorder sees it."""
        driver_registry._probe.cache_clear()
        default = driver_schema("own.driver").options["fps"].default
        assert isinstance(default, float)
        return default


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("CACHE_DIRECTORY", str(made.cache))
    monkeypatch.chdir(tmp_path)
    return made


def test_a_driver_is_asked_once(place: Place) -> None:
    assert place.ask() == place.ask() == place.ask() == 10.0
    assert place.calls == 1
    assert place.entry.stat().st_mode & 0o777 == 0o600
    assert place.cache.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in place.cache.iterdir()] == [place.entry.name]


def test_a_change_of_what_the_driver_imports_is_seen(place: Place) -> None:
    place.ask()
    place.options.write_text(OPTIONS.replace("10.0", "25.5"))
    assert (place.ask(), place.ask(), place.calls) == (25.5, 25.5, 2)


def test_a_change_of_the_driver_is_seen(place: Place) -> None:
    place.ask()
    times = place.driver.stat()
    os.utime(place.driver, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    place.ask()
    assert place.calls == 2


def test_a_driver_that_became_faulty_is_reported(place: Place) -> None:
    place.ask()
    place.options.unlink()
    for _ in range(2):  # an error is not kept
        with pytest.raises(ConfigError, match="No module named 'own_options'"):
            place.ask()
    place.options.write_text(OPTIONS)
    assert place.ask() == 10.0


def test_another_working_directory_may_hold_another_driver(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.ask()
    other = Place(tmp_path / "elsewhere")
    other.options.write_text(OPTIONS.replace("10.0", "3.5"))
    monkeypatch.chdir(other.options.parent)
    place.ask()  # the folder's own package comes before what is installed
    assert (place.calls, other.calls) == (1, 1)
    monkeypatch.setenv("PYTHONPATH", str(other.options.parent))
    assert place.ask() == 3.5
    assert (place.calls, other.calls) == (1, 2)


def remade(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    def make(text: bytes) -> bytes:
        entry = json.loads(text)
        change(entry)
        return json.dumps(entry).encode()

    return make


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: b"",
        lambda text: b"\xff" * 100,
        lambda text: b"[]",
        lambda text: b"[" * 200_000,
        remade(lambda entry: entry.update(files=[1])),
        remade(lambda entry: entry.update(files=[["x", 1]])),
        remade(lambda entry: entry.update(files=None)),
        remade(lambda entry: entry.update(schema={"name": 1})),
        remade(lambda entry: entry.pop("schema")),
        remade(lambda entry: entry.update(made_by=["another Python"])),
    ],
)
def test_a_damaged_entry_is_ignored_and_replaced(
    place: Place, damage: Callable[[bytes], bytes]
) -> None:
    place.ask()
    place.entry.write_bytes(damage(place.entry.read_bytes()))
    assert (place.ask(), place.calls) == (10.0, 2)
    assert (place.ask(), place.calls) == (10.0, 2)


def test_an_entry_of_another_user_is_ignored(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert SchemaCache("own.driver").read() is None


def test_no_place_for_a_cache_is_no_fault(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_DIRECTORY", "/proc/nowhere")
    assert (place.ask(), place.ask(), place.calls) == (10.0, 10.0, 2)


def test_a_driver_that_names_no_files_is_always_asked(place: Place) -> None:
    place.driver.write_text(DRIVER.replace("FILES", "None"))
    assert (place.ask(), place.ask(), place.calls) == (10.0, 10.0, 2)
    assert not place.entry.exists()


def test_the_places_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("CACHE_DIRECTORY", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "recorder"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/ada")
    assert cache_folder() == Path("/var/cache/ada/recorder")
    monkeypatch.setenv("CACHE_DIRECTORY", "/var/cache/recorder:/var/cache/more")
    assert cache_folder() == Path("/var/cache/recorder")


def test_the_recorders_own_drivers_name_the_files_of_their_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    driver_registry._probe.cache_clear()
    names = available_drivers()
    prefetch(names)
    for name in names:
        assert SchemaCache(name).read() == driver_schema(name)
        files = [
            Path(file[0])
            for file in json.loads((tmp_path / f"driver-{name}.json").read_text())["files"]
        ]
        ends = {"/".join(path.parts[-3:]) for path in files}
        assert any(end.endswith(f"drivers/{name}.py") for end in ends)
        assert {
            "drivers/_kit/runner.py",
            "contract/config/options.py",
            "sim/world/scenes.py",
        } <= ends
