"""What `make install` installs is pinned with its digests, and its licences are listed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply.licences import DOCUMENT, document, licence
from tests.supply.lock import CONSTRAINTS, LOCK, ROOT, read_lock

GROUPS, PACKAGES = read_lock(LOCK.read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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
        if known not in found:
            found.add(known)
            try:
                waiting += needed(requires(known[0]) or [], ("", *requirement.extras))
            except PackageNotFoundError:
                continue  # of a group that is not installed here; the package itself is needed
    return {name for name, _ in found}


def test_every_pin_has_its_digests() -> None:
    pins = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    locked = {f"{p.name}=={p.version}" for p in PACKAGES}
    assert locked == {
        f"{canonicalize_name(name)}=={version}"
        for name, version in (pin.partition(";")[0].strip().split("==") for pin in pins)
    }, "run `make lock`, and then `make licences`"
    for package in PACKAGES:
        assert package.hashes and package.groups, package.name
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in package.hashes)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_all_that_its_extras_need(group: str) -> None:
    """pip is not to look for anything else: it installs a group with ``--no-deps``."""
    has = {package.name for package in PACKAGES if group in package.groups}
    assert closure(GROUPS[group]) - has == set()
    assert "setuptools" in has, "what builds the recorder"


def test_the_groups_are_those_of_the_makefile() -> None:
    text = (ROOT / "Makefile").read_text()
    command = re.search(r"tests\.supply\.lock (.*?)\n\n", text.replace("\\\n", ""), re.DOTALL)
    assert command
    given = command[1]
    for variable in ("USER_EXTRAS", "VEHICLE"):
        value = re.search(rf"^{variable} := (\S+)$", text, re.MULTILINE)
        assert value
        given = given.replace(f"$({variable})", value[1])
    assert [f"{name}={','.join(extras)}" for name, extras in GROUPS.items()] == given.split()
    used = re.findall(r"install_locked,[^,]+,([a-z]+)", text)
    assert set(used) | {"live"} == GROUPS.keys()


def test_a_lock_is_read_as_it_is_written() -> None:
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    assert list(map(str, PACKAGES)) == lines
    with pytest.raises(ValueError, match="no pin: numpy>=1"):
        read_lock("numpy>=1 --hash=sha256:00 # develop\n")


def test_the_licences_of_all_packages_are_listed() -> None:
    """As installed here; what is not installed here is listed with its version all the same."""
    rows = re.findall(r"^\| (\S+) \| \S+ \| (.+) \| \S+ \|$", DOCUMENT.read_text(), re.MULTILINE)
    listed = dict(rows)
    compared = 0
    for package in PACKAGES:
        assert package.name in listed, "run `make licences`"
        try:
            stated = licence(package.name)
        except PackageNotFoundError:
            continue
        compared += 1
        assert listed[package.name] == stated
    assert compared > 80
    assert DOCUMENT.read_text() == document(PACKAGES, listed), "run `make licences`"


def test_who_asks_for_more_than_a_notice_is_named() -> None:
    text = DOCUMENT.read_text().partition("## All packages")[0]
    for name in ("av", "pyfftw", "python-can", "zeroconf", "ouster-sdk", "pyzmq", "certifi"):
        assert f"- **{name}**" in text
    assert "numpy" not in text and "not stated" not in DOCUMENT.read_text()
