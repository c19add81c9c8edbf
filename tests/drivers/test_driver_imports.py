"""What a driver's process imports before it opens its source, which delays the first sample."""

from __future__ import annotations

import subprocess
import sys

import pytest

_UNNEEDED = ("zmq", "yaml", "ssl", "http.client", "recorder.formats", "recorder.session")


@pytest.mark.parametrize("name", ["camera", "mmwave", "ouster", "xsens"])
def test_a_driver_imports_only_what_every_source_needs(name: str) -> None:
    code = f"import sys, drivers.{name}.driver, drivers.kit.runner; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = [
        m for m in done.stdout.split() if f"{m}.".startswith(tuple(f"{u}." for u in _UNNEEDED))
    ]
    assert not found
