"""The README is short; links and names of modules in README and docs lead somewhere."""

from __future__ import annotations

import ast
import html
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import recorder
from docs.make_pictures import behind
from recorder.config.options import OptionTable
from recorder.config.settings import SECTIONS, SENSOR_KEYS

PROJECT = Path(__file__).resolve().parents[1]
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
PICTURES = PROJECT / "docs" / "pictures"
README_LINES = 200
PICTURE_BYTES = 150_000
MODULE = re.compile(r"(?<![\w./-])(?:recorder|drivers|benchmarks|tests)(?:\.[a-z_]\w*)+")
NO_MODULES = {  # what looks like one in a guide
    "recorder.log", "recorder.start", "recorder.status", "recorder.stop", "drivers._NAME",
    *(f"recorder.{name}" for name in recorder.__all__),
}  # fmt: skip


def prose(path: Path) -> str:
    """A document without its code blocks."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """What a link may name behind ``#``: headings as the forges and mkdocs name them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {re.sub(r"[ \-]+", "-", text.strip()) for text in words}


def test_the_readme_is_short() -> None:
    assert len((PROJECT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", prose(path))
    relative = [link for link in links if not re.match(r"[a-z]+:", link)]
    for link in relative:
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.is_relative_to(PROJECT) and target.exists(), f"{path.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{path.name}: {link}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_modules_that_are_named_exist(path: Path) -> None:
    for name in sorted(set(MODULE.findall(path.read_text())) - NO_MODULES):
        if not name.endswith(".md"):
            assert is_module(name), f"{path.name}: there is no module {name}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_names_that_examples_import_exist(path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    for block in blocks:
        if block.startswith(">>>"):
            continue  # run as a doctest
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and re.match(
                r"recorder|drivers", node.module or ""
            ):
                module = importlib.import_module(node.module or "")
                for name in node.names:
                    assert hasattr(module, name.name), f"{path.name}: {node.module}: {name.name}"


def is_module(name: str) -> bool:
    place = PROJECT / name.replace(".", "/")
    return place.is_dir() or place.with_name(f"{place.name}.py").is_file()


def test_every_key_of_the_config_is_documented() -> None:
    text = (PROJECT / "docs/configuration.md").read_text()
    documented = set(re.findall(r"`([a-z_A-Z.]+)`", text))
    keys = {f"sensors.NAME.{key}" for key in SENSOR_KEYS} | set(leaves(SECTIONS))
    assert keys - documented == {"sensors"}


def leaves(options: OptionTable, prefix: str = "") -> Iterator[str]:
    """Key paths; the settings of a process are documented together."""
    for name, option in options.items():
        if option.keys is None or name == "process":
            yield f"{prefix}{name}"
        else:
            yield from leaves(option.keys, f"{prefix}{name}.")


def test_every_guide_is_in_the_site_and_linked() -> None:
    navigation = (PROJECT / "mkdocs.yml").read_text()
    linked = "".join(prose(path) for path in DOCUMENTS)
    for path in DOCUMENTS[1:]:
        assert re.search(rf"^ +(- )?(.+: )?{path.name}$", navigation, re.MULTILINE), path.name
        assert path.name == "index.md" or f"{path.name})" in linked, path.name


def test_pictures_are_small_and_need_no_internet() -> None:
    pictures = sorted(PICTURES.iterdir())
    assert {"camera.jpg", "lidar.jpg", "radar.jpg", "live-table.svg"} <= {p.name for p in pictures}
    for path in pictures:
        assert path.stat().st_size < PICTURE_BYTES, path.name
        if path.suffix == ".svg":
            assert "@font-face" not in path.read_text() and "url(http" not in path.read_text()


def test_the_table_in_the_readme_shows_a_recorder_that_keeps_up() -> None:
    svg = (PICTURES / "live-table.svg").read_text()
    shown = html.unescape(" ".join(re.findall(r">([^<]+)<", svg))).replace("\xa0", " ")
    assert behind(shown) == []


GUIDES = [p for p in DOCUMENTS[1:] if p.stem not in ("benchmarks", "decisions", "licences")]


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_a_page_begins_with_its_purpose_and_a_command(path: Path) -> None:
    _, _, text = path.read_text().partition("\n# ")
    first = (text or path.read_text()).split("\n\n")[1]
    assert re.match(r"[\w`*]", first), f"{path.name}: {first.splitlines()[0]}"
    introduction = path.read_text().partition("\n## ")[0]
    command = r"^(\$ )?(sudo )?(\S*bin/)?(recorder|make|python3?) "
    assert re.search(command, introduction, re.MULTILINE), path.name
