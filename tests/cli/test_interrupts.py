"""Ctrl-C after the end of a recording completes the session and shows how to pack it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from recorder.cli import main
from recorder.cli.output import defer_interrupt, end_on_sigterm
from recorder.cli.post_session import Completion

CONFIG = """\
version: 1
sensors:
  imu: {driver: xsens, source: "sim:"}
finalize: [vrs]
"""


def test_the_second_signal_interrupts(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with defer_interrupt("the session is being completed") as interrupted:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted.is_set()
        assert "interrupt again to end at once" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_ends_a_verb_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), end_on_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "during", ["completion", pytest.param("packing", marks=pytest.mark.campaign(weight=2))]
)
def test_run_says_how_to_pack_what_it_recorded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    during: str,
) -> None:
    config, session = tmp_path / "rig.yaml", tmp_path / "out/drive"
    config.write_text(CONFIG)

    class Interrupted(Completion):
        def finish(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            super().finish()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    if during == "completion":
        monkeypatch.setattr("recorder.cli.run.Completion", Interrupted)
    else:
        monkeypatch.setattr("recorder.cli.finalize.finalize_session", interrupt)
    recording = ["run", str(config), "--root", str(tmp_path / "out"), "--name", "drive"]
    assert main([*recording, "--duration", "0.3"]) == 1
    captured = capfd.readouterr()
    assert f"pack it with `recorder finalize {session}`" in captured.err
    assert f"session {session}" in captured.out
    assert (session / "_recorder/checksums.csv").is_file() and (session / "_pose").is_dir()
    assert not (session / "_archives").exists()
