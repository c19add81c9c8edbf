"""What `make install` installs is pinned with its digests, and its licences are listed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.resolve import OVERRIDES, PINS, ROOT, pins

MAKEFILE = (ROOT / "Makefile").read_text()
DOCUMENT = (ROOT / "docs/licences.md").read_text()
LOCKS = {
    path.stem: path.read_text().replace("\\\n", "")
    for path in sorted((ROOT / "requirements").glob("*.lock"))
}
PIN = re.compile(r"^([a-z0-9.-]+)==(\S+)", re.MULTILINE)
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MORE_THAN_A_NOTICE = re.compile(r"\b(A?GPL|LGPL|MPL|Mozilla|EPL|EUPL|CDDL|GNU|EULA)", re.IGNORECASE)
NEVER_INSTALLED = {"pyfftw"}
"""Packages that requirements/overrides.txt leaves out everywhere."""
NOT_ON_VEHICLES = {"scipy"}
"""Packages that requirements/overrides-vehicle.txt leaves out."""


def extras(lock: str) -> list[str]:
    """The extras of a lock, as the Makefile lists them."""
    named = dict(re.findall(r"^(VEHICLE|\w+\.lock) := (.*)$", MAKEFILE, re.MULTILINE))
    return str(named[f"{lock}.lock"]).replace("$(VEHICLE)", named["VEHICLE"]).split()


def needed(texts: list[str], extras: tuple[str, ...] = ("",)) -> Iterator[Requirement]:
    for requirement in map(Requirement, texts):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            yield requirement


def closure(extras: list[str]) -> set[str]:
    """All packages that these extras of the recorder need here, by the metadata of all of them."""
    texts = [*PROJECT["dependencies"]]
    texts += (t for extra in extras for t in PROJECT["optional-dependencies"][extra])
    waiting, found = list(needed(texts)), set[tuple[str, frozenset[str]]]()
    while waiting:
        requirement = waiting.pop()
        known = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if known not in found and known[0] not in NEVER_INSTALLED:
            found.add(known)
            try:
                waiting += needed(requires(known[0]) or [], ("", *requirement.extras))
            except PackageNotFoundError:
                continue  # of a group that is not installed here; the package itself is needed
    return {name for name, _ in found}


def test_every_pin_has_its_digests() -> None:
    locked = {f"{name}=={version}".replace(".", "-") for text in LOCKS.values()
              for name, version in PIN.findall(text)}  # fmt: skip
    left_out = {pin for pin in pins(PINS) - locked if not pin.startswith("#")}
    assert {pin.partition("==")[0] for pin in left_out} == NEVER_INSTALLED, "run `make lock`"
    assert locked <= pins(PINS)
    for text in LOCKS.values():
        for line in text.splitlines():
            assert re.fullmatch(r"[a-z0-9.-]+==[^#]+?( +--hash=sha256:[0-9a-f]{64})+ *", line)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_all_that_its_extras_need(lock: str) -> None:
    """pip is not to look for anything else: it installs a lock with ``--no-deps``."""
    has = {name for name, _ in PIN.findall(LOCKS[lock])}
    left_out = NOT_ON_VEHICLES if lock == "vehicle" else set()
    assert closure(extras(lock)) - has == left_out
    assert "setuptools" in has, "what builds the recorder"


def test_the_locks_are_those_of_the_makefile() -> None:
    (listed,) = re.findall(r"^LOCKS := (.*)$", MAKEFILE, re.MULTILINE)
    assert sorted(listed.split()) == sorted(LOCKS)
    used = re.findall(r"install_locked,[^,]+,([a-z]+)", MAKEFILE)
    assert {*used, "live", "ros2"} == LOCKS.keys()


def test_what_is_left_out_is_not_installed_and_not_needed() -> None:
    assert "scipy==" not in LOCKS["vehicle"]
    assert all("fftw" not in text for text in LOCKS.values())
    assert "pyfftw ;" in OVERRIDES.read_text()
    code = (
        "import sys; sys.modules |= {'pyfftw': None, 'scipy': None}; import xwr.capture, xwr.radar"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_licences_of_all_packages_are_listed() -> None:
    rows = re.findall(r"^\| (\S+) +\| (\S+) +\| .+ \|$", DOCUMENT, re.MULTILINE)
    listed = {canonicalize_name(name) for name, _ in rows}
    linux = {name for text in LOCKS.values() for name, _ in PIN.findall(
        "\n".join(line for line in text.splitlines() if "win32" not in line))}  # fmt: skip
    assert linux - listed == set(), "run `make licences`"


def test_who_asks_for_more_than_a_notice_is_named() -> None:
    special, _, tables = DOCUMENT.partition("## On vehicles")
    asking = {
        canonicalize_name(name)
        for name, licence in re.findall(r"^\| (\S+) +\| \S+ +\| (.+) \|$", tables, re.MULTILINE)
        if MORE_THAN_A_NOTICE.search(licence) or "UNKNOWN" in licence
    }
    named = set(re.findall(r"^- \*\*([a-z0-9-]+)\*\*", special, re.MULTILINE))
    assert asking - named == set()
    assert {"av", "opencv-python-headless", "ouster-sdk", "python-can", "pyzmq"} <= named
