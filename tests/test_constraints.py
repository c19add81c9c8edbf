"""The pinned versions can be installed together."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"


def test_every_pin_is_one_that_the_packages_accept() -> None:
    """By the requirements of all packages of this environment, whatever versions it has of them.

    An environment that grew over time hides a pin that a new one cannot have.
    """
    lines = CONSTRAINTS.read_text().splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pins = {canonicalize_name(each.name): str(each.specifier)[2:] for each in pinned}
    refused, compared = [], 0
    for package in distributions():
        for text in package.requires or ():
            needed = Requirement(text)
            pin = pins.get(canonicalize_name(needed.name))
            if pin is None or (needed.marker and not needed.marker.evaluate({"extra": ""})):
                continue
            compared += 1
            if not needed.specifier.contains(pin, prereleases=True):
                refused.append(f"{package.metadata['Name']} needs {needed}, pinned is {pin}")
    assert compared > 50
    assert refused == []
