"""Hooks of mkdocs: the pages of the reference, and a check that the site needs no internet.

The reference has a page with the options of all drivers, and a page for each public package.  The
pages are made when the site is built, so that an option that is added needs no change here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import recorder

PROJECT = Path(__file__).resolve().parents[1]
PUBLIC = {
    "recorder": "read sessions",
    "recorder.formats.vrs": "write and read VRS files",
    "recorder.formats.mcap": "write and read MCAP files",
    "recorder.archives.ncore": "write NCore V4 sequences",
    "drivers.kit.driver": "write a driver",
}
"""Packages for programs of others; all other modules may change with every version."""
LOADS = re.compile(
    rb"""url\(["']?(?:https?:)?//"""
    rb"""|<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//"""
    rb"""|<link\b[^>]*\brel=["']?(?:stylesheet|preconnect|icon|preload)[^>]*\bhref=["']?(?:https?:)?//"""
)


def on_config(config: Any) -> Any:
    """Name the version, and add the pages that are made to the reference."""
    config.site_name = f"recorder {recorder.__version__}"
    pages = [{name: page_of(name)} for name in PUBLIC]
    made = [{"Options of the drivers": "reference/options.md"}, {"Python": "reference/index.md"}]
    (reference,) = (section for section in config.nav if "Reference" in section)
    reference["Reference"] += [*made, *pages]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    files.append(File.generated(config, "reference/options.md", content=options_page()))
    overview = ["# Python packages", "", "All other modules may change with every version.", ""]
    for name, purpose in PUBLIC.items():
        overview.append(f"- [`{name}`]({name}.md): {purpose}")
        files.append(File.generated(config, page_of(name), content=package_page(name)))
    files.append(File.generated(config, "reference/index.md", content="\n".join(overview)))
    return files


def package_page(name: str) -> str:
    """Write the page of a package: its docstring and its public names."""
    if name != "recorder":
        return f"# {name}\n\n::: {name}\n    options: {{show_root_heading: false}}\n"
    lines = [
        f"# {name}",
        "",
        f"::: {name}",
        "    options: {show_root_heading: false, members: false}",
    ]
    for public in recorder.__all__:
        if callable(value := getattr(recorder, public)):
            lines += [
                "",
                f"::: {value.__module__}.{public}",
                f"    options: {{heading: {name}.{public}}}",
            ]
    return "\n".join(lines) + "\n"


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings announce an example by two colons; one is shown."""
    return html.replace("::</p>", ":</p>")


def on_post_build(config: Any) -> None:
    """Fail where a page loads something from the internet."""
    for page in Path(config.site_dir).rglob("*.*"):
        if page.suffix not in (".html", ".css", ".svg"):
            continue
        if found := LOADS.search(page.read_bytes()):
            raise PluginError(f"{page}: loads from the internet: {found[0].decode()}")


def options_page() -> str:
    """Schemes and options of each driver, as ``python -m drivers.NAME schema`` prints them."""
    lines = ["# Options of the drivers", ""]
    for path in sorted((PROJECT / "drivers").glob("*/README.md")):
        command = [sys.executable, "-m", f"drivers.{path.parent.name}", "schema"]
        printed = subprocess.run(command, cwd=PROJECT, capture_output=True, check=True).stdout
        schema = json.loads(printed)
        lines += [
            f"## `{path.parent.name}`",
            "",
            schema["description"],
            "",
            "| source | |",
            "| --- | --- |",
        ]
        for scheme, text in schema["schemes"].items():
            lines.append(f"| `{scheme}:` | {cell(text)} |")
        lines += ["", "| option | default | meaning |", "| --- | --- | --- |"]
        lines += options_rows(schema["options"])
        lines.append("")
    return "\n".join(lines)


def options_rows(options: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield a row for each option, with the options inside a mapping after it."""
    for name, option in options.items():
        default = option["default"]
        shown = "" if default in (None, "") else f"`{json.dumps(default)}`"
        text = option.get("description", "")
        if choices := option.get("choices"):
            text += ": " + ", ".join(f"`{choice}`" for choice in choices)
        elif "minimum" in option and "maximum" in option:
            text += f" ({option['minimum']:g} to {option['maximum']:g})"
        yield f"| `{prefix}{name}` | {shown} | {cell(text)} |"
        item = "[]" if option.get("items") else ""
        yield from options_rows(option.get("keys", {}), f"{prefix}{name}{item}.")


def cell(text: str) -> str:
    """Escape a text for a cell of a table."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def page_of(module: str) -> str:
    """Return the path of a module's page."""
    return f"reference/{module}.md"
