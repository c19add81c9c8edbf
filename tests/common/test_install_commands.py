"""The line that installs an extra works here: the package is in no registry."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from recorder.common import errors

PROJECT = Path(__file__).resolve().parents[2]
SOURCES = [p for room in ("recorder", "drivers") for p in (PROJECT / room).rglob("*.py")]


def test_a_clone_is_installed_from_its_folder() -> None:
    text = errors.need_extra("live")
    assert text.startswith("needs the extra live (") and text.endswith(")")
    command = shlex.split(text.partition("(")[2].removesuffix(")"))
    assert command == [sys.executable, "-m", "pip", "install", f"{PROJECT}[live]"]


def test_elsewhere_the_wheel_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(errors, "_PROJECT", tmp_path)
    assert "'vehicle_recorder-VERSION-py3-none-any.whl[rtsp]'" in errors.need_extra("rtsp")


def test_every_extra_that_is_named_exists() -> None:
    known = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    text = "".join(path.read_text() for path in SOURCES)
    named = set(re.findall(r"need_extra\(['\"]([a-z0-9]+)", text))
    assert len(named) > 8 and named <= known["optional-dependencies"].keys()
    assert "vehicle-recorder[" not in text
