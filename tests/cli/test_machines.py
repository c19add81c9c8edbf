"""The command refuses machines that it does not support before it imports anything heavy."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from recorder.__main__ import main


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("maxsize", 2**31 - 1, "32-bit"), ("byteorder", "big", "big-endian")],
)
def test_an_unsupported_machine_is_refused_first(
    name: str,
    value: object,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "recorder.cli", None)  # an import of it would raise
    with monkeypatch.context() as machine:
        machine.setattr(sys, name, value)
        code = main()
    assert code == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("recorder: ")
    assert message in lines[0]


def test_a_supported_machine_runs_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> int:
        print("command ran")
        raise KeyboardInterrupt

    cli = ModuleType("recorder.cli")
    monkeypatch.setattr(cli, "main", command, raising=False)
    monkeypatch.setitem(sys.modules, "recorder.cli", cli)
    assert main() == 1
    assert capsys.readouterr().out == "command ran\n"
