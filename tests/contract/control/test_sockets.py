"""Where the control socket lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.contract.control.sockets import socket_to_ask, socket_to_serve
from recorder.contract.errors import UsageError


def test_where_the_socket_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "run/recorder/control.sock"
    monkeypatch.delenv("RECORDER_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "user"))
    own = tmp_path / "user/recorder/control.sock"
    given = tmp_path / "given.sock"
    assert socket_to_serve(given, system) == socket_to_ask(given, system) == given
    assert socket_to_serve(None, system) == own  # there is no /run here
    assert socket_to_ask(None, system) == own
    system.parent.mkdir(parents=True)
    assert socket_to_serve(None, system) == system
    system.touch()
    assert socket_to_ask(None, system) == system
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert socket_to_ask(None, system) == system
    with pytest.raises(UsageError, match="--socket"):
        socket_to_serve(None, tmp_path / "no/where/control.sock")


def test_the_environment_names_a_socket_before_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "run/control.sock"
    system.parent.mkdir()
    system.touch()
    named, given = tmp_path / "named.sock", tmp_path / "given.sock"
    monkeypatch.setenv("RECORDER_SOCKET", str(named))
    assert socket_to_serve(None, system) == socket_to_ask(None, system) == named
    assert socket_to_serve(given, system) == socket_to_ask(given, system) == given
    monkeypatch.setenv("RECORDER_SOCKET", "")
    assert socket_to_serve(None, system) == socket_to_ask(None, system) == system
