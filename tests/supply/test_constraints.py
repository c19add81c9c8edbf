"""The pinned versions can be installed together."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.resolve import MACHINES, OVERRIDES, PINS, PYTHONS, ROOT, extras, pins


def _requirements(text: str) -> list[Requirement]:
    return [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]


OVERRIDDEN = {
    canonicalize_name(each.name)
    for each in _requirements(OVERRIDES.read_text())
    if each.marker is None  # with one, the package is left out
}


def _refused(machine: str, holds: Callable[[str], bool] = lambda _: True) -> list[str]:
    """Who refuses which pin on a machine, of the pinned packages for which `holds`.

    By the requirements of all packages of this environment, whatever versions it has of them: an
    environment that grew over time hides a pin that a new one cannot have.
    """
    here = {"extra": "", "platform_machine": machine}
    pinned = {
        canonicalize_name(each.name): str(each.specifier)[2:]
        for each in _requirements(PINS.read_text())
        if each.marker is None or each.marker.evaluate(here)
    }
    refused, compared = [], 0
    for package in distributions():
        for text in package.requires or ():
            needed = Requirement(text)
            name = canonicalize_name(needed.name)
            if name not in pinned or (needed.marker and not needed.marker.evaluate(here)):
                continue
            compared += 1
            if holds(name) and not needed.specifier.contains(pinned[name], prereleases=True):
                told = f"{package.metadata['Name']} needs {needed}, pinned is {pinned[name]}"
                refused.append(told)
    assert compared > 50
    return refused


def test_every_pin_is_one_that_the_packages_accept() -> None:
    assert _refused("x86_64") == []


def test_on_aarch64_only_what_is_overridden_is_refused() -> None:
    """And an override that nobody needs any more is noticed."""
    assert _refused("aarch64", lambda name: name not in OVERRIDDEN) == []
    assert len(_refused("aarch64", OVERRIDDEN.__contains__)) == len(OVERRIDDEN)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_package_has_one_pin_on_every_machine(machine: str) -> None:
    here = {"platform_machine": machine}
    names = [
        canonicalize_name(each.name)
        for each in _requirements(PINS.read_text())
        if each.marker is None or each.marker.evaluate(here)
    ]
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))


def test_a_pin_of_the_conformance_software_goes_before_ours_by_its_name() -> None:
    """The Makefile drops ours where both have one: by the name as it is written there."""
    own = _requirements((ROOT / "requirements/constraints-conformance.txt").read_text())
    ours = {canonicalize_name(each.name): each for each in _requirements(PINS.read_text())}
    shared = [each for each in own if canonicalize_name(each.name) in ours]
    assert [each.name for each in shared] == ["numcodecs"]
    for each in shared:
        mine = ours[canonicalize_name(each.name)]
        assert (each.name, each.marker, mine.marker) == (mine.name, None, None)
        assert each.specifier != mine.specifier  # else one pin is enough


def test_users_extras_are_resolved_for_every_python() -> None:
    """`make resolve` resolves them with uv; the pins that it compares with are uv's spelling."""
    for python in PYTHONS:
        assert {"archives", "can", "custody", "encryption", "live", "s3"} <= set(extras(python))
        assert "conformance" not in extras(python)
    assert "odometry" in extras("3.13")
    assert {"ouster-sdk==1-0-1", "psutil==7-2-2", "psutil==5-9-8"} <= pins(PINS)
