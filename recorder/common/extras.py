"""Installation command of an extra; the package is in no registry, so a name is not enough."""

from __future__ import annotations

import sys
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[2]
_WHEEL = "vehicle_recorder-VERSION-py3-none-any.whl"


def need_extra(extra: str) -> str:
    """Return ``needs the extra rtsp (COMMAND)``, for the clone that runs, else for the wheel."""
    source = _PROJECT if (_PROJECT / "pyproject.toml").is_file() else Path(_WHEEL)
    return f"needs the extra {extra} ({sys.executable} -m pip install '{source}[{extra}]')"
