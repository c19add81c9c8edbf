"""Makes requirements.lock from constraints.txt: ``make lock``, which asks the package registry.

A line of the lock is one pinned package: its version, the SHA-256 of every file that was published
of that version, and the groups that need the package on Linux::

    anyio==4.16.0 --hash=sha256:... --hash=sha256:... # develop live

The first lines name the extras of each group.  The Makefile installs a group with pip's
``--require-hashes``: a file that has another content is refused.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
OVERRIDES = ROOT / "overrides.txt"
LOCK = ROOT / "requirements.lock"
OLDEST = "3.11.5"  # of Python: an older 3.11 does not have what the site needs
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
BUILD = ("setuptools",)  # what building the recorder itself needs, in groups that install it
_HEAD = "# Made by `make lock`, of constraints.txt. The groups, and their extras:\n"
_PIN = re.compile(r"([\w.-]+)==(\S+)(?: ; (.+))?")
_GROUP = re.compile(r"# ([a-z-]+): ([a-z0-9,]+)")


@dataclass(frozen=True, slots=True)
class Locked:
    """A line of the lock.

    Attributes:
        name: canonical (PEP 503).
        version: the pinned one.
        marker: the machines that it is for; "" for all.
        hashes: SHA-256 of the version's files, in hexadecimal.
        groups: that need it.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    groups: frozenset[str]

    def __str__(self) -> str:
        marker = f" ; {self.marker}" if self.marker else ""
        hashes = "".join(f" --hash=sha256:{each}" for each in self.hashes)
        return f"{self.name}=={self.version}{marker}{hashes} # {' '.join(sorted(self.groups))}"


def read_lock(text: str) -> tuple[dict[str, list[str]], list[Locked]]:
    """Return the extras of each group, and the packages, of a lock's text."""
    groups, packages = {}, []
    for line in text.splitlines():
        if match := _GROUP.fullmatch(line):
            groups[match[1]] = match[2].split(",")
        elif not line.startswith("#"):
            requirement, _, needing = line.partition(" # ")
            pin, *hashes = requirement.split(" --hash=sha256:")
            match = _PIN.fullmatch(pin)
            if match is None:
                raise ValueError(f"no pin: {pin}")
            name, version, marker = match.groups(default="")
            packages.append(
                Locked(name, version, marker, tuple(hashes), frozenset(needing.split()))
            )
    return groups, packages


def main(arguments: list[str]) -> int:
    """Write the lock of the groups ``NAME=EXTRA,EXTRA...`` that are given."""
    groups = {name: extras.split(",") for name, _, extras in (a.partition("=") for a in arguments)}
    with ThreadPoolExecutor() as pool:  # they wait for the registry
        pins = pool.submit(lambda: list(_pinned()))
        needed = dict(zip(groups, pool.map(_needed, groups.values()), strict=True))
    useless: list[str] = []
    lines = [_HEAD, *(f"# {name}: {','.join(extras)}\n" for name, extras in groups.items())]
    for name, version, marker, hashes in pins.result():
        wanted = frozenset(group for group, names in needed.items() if name in names)
        if not wanted:
            useless.append(name)
        lines.append(f"{Locked(name, version, marker, hashes, wanted)}\n")
    if useless:
        raise SystemExit(f"{CONSTRAINTS.name}: no group needs {', '.join(useless)}")
    LOCK.write_text("".join(lines))
    return 0


def _needed(extras: list[str]) -> set[str]:
    """The packages that the recorder with these extras needs on a Linux that we support."""
    asked = [argument for extra in extras for argument in ("--extra", extra)]
    pins = ("--constraint", str(CONSTRAINTS), "--override", str(OVERRIDES))
    resolved = _compile(*pins, *asked, "pyproject.toml")
    found = map(_PIN.fullmatch, resolved.splitlines())
    return {*BUILD, *(match[1] for match in found if match is not None and _on_linux(match[3]))}


def _on_linux(marker: str | None) -> bool:
    environments = (
        {
            "implementation_name": "cpython", "os_name": "posix", "platform_machine": machine,
            "platform_python_implementation": "CPython", "platform_system": "Linux",
            "python_full_version": f"{python}.5", "python_version": python,
            "sys_platform": "linux",
        }
        for python in PYTHONS for machine in MACHINES
    )  # fmt: skip
    return marker is None or any(Marker(marker).evaluate(each) for each in environments)


def _pinned() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Name, version, marker and hashes of every pin."""
    text = _compile("--no-deps", "--generate-hashes", str(CONSTRAINTS))
    for line in text.replace("\\\n", "").splitlines():
        pin, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
        match = _PIN.fullmatch(pin.strip())
        if match is not None:
            name, version, marker = match.groups(default="")
            yield name, version, marker, tuple(hashes)


def _compile(*arguments: str) -> str:
    command = [
        "uv", "pip", "compile", "--quiet", "--universal", "--no-annotate", "--no-header",
        "--python-version", OLDEST, *arguments,
    ]  # fmt: skip
    uv = Path(sys.executable).parent / command[0]
    done = subprocess.run(
        [uv, *command[1:]], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
