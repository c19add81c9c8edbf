"""How an extra is installed here: the package is in no registry, so its name alone says nothing."""

from __future__ import annotations

import sys
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[2]
_WHEEL = "vehicle_recorder-VERSION-py3-none-any.whl"


def need_extra(extra: str) -> str:
    """``needs the extra rtsp (COMMAND)``: from the clone that runs, or else from the wheel."""
    source = _PROJECT if (_PROJECT / "pyproject.toml").is_file() else Path(_WHEEL)
    return f"needs the extra {extra} ({sys.executable} -m pip install '{source}[{extra}]')"
