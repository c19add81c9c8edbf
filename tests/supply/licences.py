"""Makes docs/licences.md from the metadata of installed packages: ``make licences``."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.supply.lock import LOCK, ROOT, Locked, read_lock

DOCUMENT = ROOT / "docs" / "licences.md"
_VEHICLE = ("vehicle", "live")
_COPYLEFT = re.compile(r"\b(A?GPL|LGPL|MPL|Mozilla|EPL|EUPL|CDDL|GNU)", re.IGNORECASE)
_OWN_TERMS = re.compile(r"EULA|proprietary|commercial", re.IGNORECASE)
_UNKNOWN = "not stated"
_STATED = {  # by the packages' projects; their metadata do not
    "mergedeep": "MIT",
    "pyrage": "MIT",
}
_BUNDLED = {  # libraries of others in the published files, which the metadata do not name
    "av": "FFmpeg with x264 and x265 (GPL-2.0-or-later), LAME (LGPL-2.0-or-later)",
    "opencv-python-headless": "FFmpeg (LGPL-2.1-or-later)",
    "pyfftw": "FFTW (GPL-2.0-or-later)",
    "pyzmq": "libzmq (MPL-2.0)",
}
_TEXT = """# Licences of the dependencies

`make licences` makes this page from the metadata of the packages in `requirements.lock`: all that
`make install`, `make demo`, the tests and the site install on Linux. `make sbom` writes the same of
any environment as a CycloneDX document. What `make conformance` and `make bench-all` install beside
that is no part of the recorder.

## What asks for more than a notice

{special}

`make install` puts the packages with `vehicle` in the last column on a vehicle, with `LIVE=1` also
those with `live`. A wheel of the recorder contains none of them. Whoever hands on a computer or
an image with the packages installed hands them on under their licences.

## All packages

| package | version | licence | vehicle |
| --- | --- | --- | --- |
{packages}
"""


def licence(name: str) -> str:
    """The licence of an installed package, as its metadata state it.

    Raises:
        PackageNotFoundError: it is not installed.
    """
    found = metadata(name)
    classified = [
        text.rpartition(" :: ")[2]
        for text in found.get_all("Classifier") or ()
        if text.startswith("License ::") and not text.endswith(":: OSI Approved")
    ]
    texts = (text.strip() for text in found.get_all("License") or ())
    stated = next(iter("".join(texts).splitlines()), "")
    short = stated if re.fullmatch(r"[\w .,()+-]{2,60}", stated) and stated != "UNKNOWN" else ""
    if short.startswith("Copyright") or "===" in short:
        short = ""
    specific = short if "Dual" not in short else ""
    return (
        next(iter(found.get_all("License-Expression") or ()), "")
        or specific
        or " or ".join(classified)
        or _STATED.get(canonicalize_name(name))
        or _UNKNOWN
    )


def special(package: Locked, stated: str) -> str | None:
    """What a package asks for beyond its notice being kept; None: nothing more."""
    bundled = _BUNDLED.get(package.name)
    if bundled is None and not _COPYLEFT.search(stated) and not _OWN_TERMS.search(stated):
        return None
    more = f"; its files contain {bundled}" if bundled else ""
    return f"- **{package.name}**: {stated}{more}. Installed {_where(package)}."


def _where(package: Locked) -> str:
    if "vehicle" in package.groups:
        return "on vehicles"
    return "on vehicles with `LIVE=1`" if "live" in package.groups else "for development alone"


def document(packages: list[Locked], licences: dict[str, str]) -> str:
    """The page; `licences` by name."""
    rows = (
        f"| {p.name} | {p.version} | {licences[p.name]} "
        f"| {next((group for group in _VEHICLE if group in p.groups), '-')} |"
        for p in packages
    )
    lines = (special(p, licences[p.name]) for p in packages)
    text = "\n".join(line for line in lines if line is not None)
    return _TEXT.format(special=text, packages="\n".join(rows))


def main() -> int:
    """Write the page."""
    _, packages = read_lock(LOCK.read_text())
    try:
        licences = {package.name: licence(package.name) for package in packages}
    except PackageNotFoundError as error:
        print(f"{error.name} is not installed: make {Path('.venv')} anew", file=sys.stderr)
        return 1
    DOCUMENT.write_text(document(packages, licences))
    return 0


if __name__ == "__main__":
    sys.exit(main())
