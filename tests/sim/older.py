"""The same computation on a processor without the later vector units."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

X86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="names features of x86-64 processors"
)
_FEATURES = "X86_V3 X86_V4 AVX512_ICL AVX512_SPR AVX2 FMA3 AVX512F AVX512CD AVX512_SKX"


def digest_on_an_older_processor(module: str) -> str:
    """What a module's `digest` gives where numpy and BLAS round as on processors of 2005."""
    code = f"import tests.conftest; from {module} import digest; print(digest())"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": _FEATURES, "OPENBLAS_CORETYPE": "Prescott"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
