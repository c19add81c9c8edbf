"""Where the control socket lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.bus.control.addresses import choose_client_socket, choose_server_socket
from recorder.common.errors import UsageError


def test_where_the_socket_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "run/recorder/control.sock"
    monkeypatch.delenv("RECORDER_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "user"))
    own = tmp_path / "user/recorder/control.sock"
    given = tmp_path / "given.sock"
    assert choose_server_socket(given, system) == choose_client_socket(given, system) == given
    assert choose_server_socket(None, system) == own  # there is no /run here
    assert choose_client_socket(None, system) == own
    system.parent.mkdir(parents=True)
    assert choose_server_socket(None, system) == system
    system.touch()
    assert choose_client_socket(None, system) == system
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert choose_client_socket(None, system) == system
    with pytest.raises(UsageError, match="--socket"):
        choose_server_socket(None, tmp_path / "no/where/control.sock")


def test_the_environment_names_a_socket_before_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "run/control.sock"
    system.parent.mkdir()
    system.touch()
    named, given = tmp_path / "named.sock", tmp_path / "given.sock"
    monkeypatch.setenv("RECORDER_SOCKET", str(named))
    assert choose_server_socket(None, system) == choose_client_socket(None, system) == named
    assert choose_server_socket(given, system) == choose_client_socket(given, system) == given
    monkeypatch.setenv("RECORDER_SOCKET", "")
    assert choose_server_socket(None, system) == choose_client_socket(None, system) == system
