"""Which test files mirror a module: by folder, by what they import, and by what stands here."""

from __future__ import annotations

import ast
from pathlib import Path

# By folder it would be found nowhere, or elsewhere too.  A prefix of a module's path -> tests.
BESIDE = {
    "recorder/": ("tests/test_publishers.py",),
    "recorder/codecs/": ("tests/formats", "tests/drivers/kit/test_encode.py"),
    "recorder/config": ("tests/recording/daemon", "tests/cli", "tests/drivers"),
    "recorder/bus/control/": ("tests/recording/daemon", "tests/cli/test_control_verbs.py"),
    "recorder/bus/control/keys": (
        "tests/recording/daemon/test_control.py",
        "tests/cli/test_check.py",
    ),
    "recorder/common/module_launcher": ("tests/cli/test_messages.py",),
    "recorder/codecs/raw_pixels": ("tests/perception", "tests/archives/test_raw_pictures.py"),
    "recorder/common/secret_masking": ("tests/acceptance/test_bad_input.py", "tests/session"),
    "recorder/config/yaml_lines": ("tests/cli", "tests/acceptance/test_bad_input.py"),
    "recorder/formats/": ("tests/session", "tests/recording/writer"),
    "recorder/session/": (
        "tests/faults",
        "tests/accounting",
        "tests/recording/writer",
        "tests/cli",
    ),
    "recorder/recording/writer/": (
        "tests/drivers/kit",
        "tests/faults",
        "tests/accounting",
        "tests/crash",
    ),
    "recorder/perception/": ("tests/archives", "tests/drivers/world"),
    "recorder/archives/export/": (
        "tests/cli/test_export.py",
        "tests/cli/test_export_pictures.py",
    ),
    "recorder/archives/": ("tests/archives/finalize",),
    "recorder/archives/base": ("tests/archives",),
    "recorder/archives/staging": ("tests/archives",),
    "recorder/recording/daemon/": ("tests/cli", "tests/accounting"),
    "recorder/cli/": ("tests/archives/finalize", "tests/faults", "tests/acceptance"),
    "recorder/cli/catalog": ("tests/fleet/catalog",),
    "recorder/cli/clip": ("tests/recording/clip",),
    "recorder/cli/control": ("tests/recording/daemon",),
    "recorder/cli/download": ("tests/fleet",),
    "recorder/cli/events": ("tests/recording/triggers", "tests/recording/clip"),
    "recorder/cli/finalize": ("tests/fleet",),
    "recorder/cli/keys": ("tests/integrity",),
    "recorder/cli/report": ("tests/viewers/report",),
    "recorder/cli/serve": ("tests/recording/daemon",),
    "recorder/cli/post_session": (
        "tests/recording/daemon/test_postprocessing.py",
        "tests/drivers/world",
    ),
    "recorder/cli/upload": ("tests/fleet",),
    "recorder/cli/verify": ("tests/integrity", "tests/fleet"),
    "recorder/__main__": ("tests/acceptance",),
    "drivers/kit/": ("tests/accounting",),
    "drivers/sim/": ("tests/drivers",),
    "drivers/camera": ("tests/drivers",),
    "drivers/ouster": ("tests/drivers",),
    "drivers/mmwave": ("tests/drivers",),
    "drivers/xsens": ("tests/drivers",),
}
# What has options, which tests/interface lists.
OPTIONS = (
    "drivers/kit/driver",
    "drivers/camera",
    "drivers/mmwave",
    "drivers/ouster",
    "drivers/xsens",
    "recorder/archives/",
    "recorder/cli/",
    "recorder/config/",
    "recorder/bus/control/requests",
)
# Modules that every test needs: to import one does not mean to test it.
COMMON = (
    "recorder/common/",
    "recorder/config/",
    "recorder/bus/",
    "recorder/codecs/streams",
    "drivers/kit/driver",
)
# What runs elsewhere or for long.
LEFT_OUT = ("tests/conformance/", "tests/systemd/", "tests/soak/", "tests/mutants/")


class Suites:
    """The test files of a tree, and what they import.

    for file in Suites(root).of("drivers/kit/runner.py"):
        ...
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        tests = sorted((root / "tests").rglob("*.py"))
        self._imports = {p.relative_to(root).as_posix(): _imported(p) for p in tests}
        self._known: dict[str, set[str]] = {}
        self._files = [f for f in self._imports if Path(f).name.startswith("test_")]

    def of(self, module: str) -> list[str]:
        """The test files that mirror a module (its path in the tree), in order."""
        found = set(self._below(_twin_folder(self._root, module)))
        for prefix, places in BESIDE.items():
            if module.startswith(prefix):
                found.update(file for place in places for file in self._below(place))
        if module.startswith(OPTIONS):
            found.update(self._below("tests/interface"))
        if not module.startswith(COMMON):
            name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            found.update(file for file in self._files if name in self._reached(file))
        return sorted(file for file in found if not file.startswith(LEFT_OUT))

    def _below(self, place: str | None) -> list[str]:
        return [f for f in self._files if place and (f == place or f.startswith(f"{place}/"))]

    def _reached(self, file: str) -> set[str]:
        """What a test file imports, and what the modules beside it import for it."""
        if file not in self._known:
            names: set[str] = set()
            seen: set[str] = set()
            waiting = [file]
            while waiting:
                current = waiting.pop()
                if current not in seen and current in self._imports:
                    seen.add(current)
                    names |= self._imports[current]
                    waiting += [f"{n.replace('.', '/')}.py" for n in self._imports[current]]
                    waiting.append(str(Path(current).with_name("conftest.py")))
            self._known[file] = names
        return self._known[file]


def _twin_folder(root: Path, module: str) -> str | None:
    """The folder of tests that is called as the module or its package; the most particular one."""
    parts = [part.lstrip("_") for part in Path(module).with_suffix("").parts]
    for depth in range(len(parts), 0, -1):
        for names in (parts[1:depth], parts[:depth]):
            place = Path("tests", *names)
            if names and (root / place).is_dir():
                return place.as_posix()
    return None


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names
