"""Print what the recorder's installation takes on disk, as tables of Markdown: ``make sizes``.

Counts the files of the environment that it runs in, with their bytecode.  A package that the
recorder needs without any extra counts as core; an extra adds what is not core.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "vehicle-recorder"
LEFT_OUT = {"pyfftw"}
"""Packages that requirements/overrides.txt leaves out of the locks."""
LEAST_MB = 2.0
"""Smaller packages are one row together."""


def needed(name: str, extra: str, found: dict[str, set[str]], by: str = "") -> dict[str, set[str]]:
    """All packages that a package needs with an extra, each with the packages that ask for it."""
    key = canonicalize_name(name)
    known = key in found
    found.setdefault(key, set()).add(by)
    if known and not extra:
        return found
    for text in distribution(name).requires or ():
        each = Requirement(text)
        if each.name in LEFT_OUT:
            continue
        if each.marker and not each.marker.evaluate({"extra": extra}):
            continue
        for option in ("", *sorted(each.extras)):
            try:
                needed(each.name, option, found, by=key)
            except PackageNotFoundError:
                raise SystemExit(f"{key} needs {each}, which is not installed") from None
    return found


def size(package: Distribution) -> int:
    """Return the bytes of a package's files, and of their bytecode."""
    paths: set[Path] = set()
    for file in package.files or ():
        path = Path(str(file.locate())).resolve()
        paths.add(path)
        if path.suffix == ".py":
            paths.add(Path(importlib.util.cache_from_source(str(path))))
    return sum(path.stat().st_size for path in paths if path.is_file())


def rows(packages: dict[str, set[str]], sizes: dict[str, float]) -> list[str]:
    """Return a row for each package of some size, the largest first, and one for the others."""
    ordered = sorted(packages, key=lambda name: -sizes[name])
    large = [name for name in ordered if sizes[name] >= LEAST_MB]
    small = ordered[len(large) :]
    found = [
        f"| {name} | {sizes[name]:.0f} | {', '.join(sorted(filter(None, packages[name]))) or '-'} |"
        for name in large
    ]
    if small:
        rest = sum(sizes[name] for name in small)
        found.append(f"| {len(small)} others, each below {LEAST_MB:g} MB | {rest:.0f} | |")
    return found


def main() -> None:
    """Print the table of the core and the table of the extras."""
    extras = sorted(distribution(ROOT).metadata.get_all("Provides-Extra") or ())
    core = needed(ROOT, "", {})
    sizes = {name: size(distribution(name)) / 1e6 for name in core}
    total = sum(sizes.values())
    print("| core | MB | needed by |\n| --- | ---: | --- |")
    print(*rows(core, sizes), f"| **all of the core** | **{total:.0f}** | |", sep="\n")
    print("\n| extra | adds MB | most of it |\n| --- | ---: | --- |")
    for extra in extras:
        try:
            added = {name for name in needed(ROOT, extra, {}) if name not in core}
        except SystemExit:
            continue  # for developers
        sizes |= {name: size(distribution(name)) / 1e6 for name in added}
        largest = sorted(added, key=lambda name: -sizes[name])[:4]
        told = ", ".join(f"{name} {sizes[name]:.1f}" for name in largest)
        print(f"| `{extra}` | {sum(sizes[name] for name in added):.1f} | {told} |")


if __name__ == "__main__":
    main()
