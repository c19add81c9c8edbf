"""Hooks of mkdocs: the pages of the API reference, and a check that the site needs no internet.

The reference has a page for each module of the public packages.  The pages are made when the site
is built, so that a module that is added or renamed needs no change here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

PROJECT = Path(__file__).resolve().parents[1]
PUBLIC = {
    "recorder.contract": "what drivers and the recorder agree on",
    "recorder.session": "sessions on disk",
    "recorder.formats": "file formats",
    "drivers._kit": "what a driver is made of",
}
LOADS = re.compile(
    rb"""url\(["']?(?:https?:)?//"""
    rb"""|<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//"""
    rb"""|<link\b[^>]*\brel=["']?(?:stylesheet|preconnect|icon|preload)[^>]*\bhref=["']?(?:https?:)?//"""
)


def on_config(config: Any) -> Any:
    """Add the reference to the navigation."""
    section: list[dict[str, Any]] = [{"Overview": "reference/index.md"}]
    for package in PUBLIC:
        pages = [{name.removeprefix(f"{package}."): page_of(name)} for name in modules(package)]
        section.append({package: pages})
    config.nav.append({"Reference": section})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the reference."""
    overview = ["# API reference", ""]
    for package, holds in PUBLIC.items():
        overview += [f"## `{package}`", "", f"{holds[0].upper()}{holds[1:]}.", ""]
        for name in modules(package):
            overview.append(f"- [`{name}`]({name}.md): {summary(name)}")
            content = f"# {name}\n\n::: {name}\n    options: {{show_root_heading: false}}\n"
            files.append(File.generated(config, page_of(name), content=content))
        overview.append("")
    files.append(File.generated(config, "reference/index.md", content="\n".join(overview)))
    return files


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


def page_of(module: str) -> str:
    """The path of a module's page."""
    return f"reference/{module}.md"


def summary(module: str) -> str:
    """The first line of a module's docstring."""
    path = PROJECT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.partition("\n")[0]


def modules(package: str) -> list[str]:
    """The package and the public modules in it, by name."""
    folder = PROJECT / package.replace(".", "/")
    found = []
    for path in sorted(folder.rglob("*.py")):
        inner = path.relative_to(folder).with_suffix("").parts
        inner = inner[:-1] if inner[-1] == "__init__" else inner
        if not any(part.startswith("_") for part in inner):
            found.append(".".join((package, *inner)))
    return found
