"""The profiles of MCAP archives, by their names."""

from __future__ import annotations

import importlib
from typing import Final

from recorder.archives.mcap.topics import Profile
from recorder.contract.errors import UsageError
from recorder.contract.extras import need_extra

PROFILES: Final = ("foxglove", "ros2")
_NEEDED: Final = {"foxglove": ("mcap", "foxglove"), "ros2": ("mcap",)}


def load_profile(name: str) -> Profile:
    """A profile by its name.

    Raises:
        UsageError: a package that it needs is not installed.
    """
    try:
        for module in _NEEDED[name]:
            importlib.import_module(module)
        profile: Profile = importlib.import_module(f"recorder.archives.mcap.{name}").PROFILE
    except ModuleNotFoundError as error:
        if (error.name or "recorder").startswith("recorder"):
            raise
        text = f"mcap.profile: {name} {need_extra('archives')}: no {error.name}"
        raise UsageError(text) from None
    return profile
