"""A root of sessions, and the calls to the kernel below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.syscalls import Syscalls


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def syscalls(root: Path, monkeypatch: pytest.MonkeyPatch) -> Syscalls:
    return Syscalls(root, monkeypatch)
