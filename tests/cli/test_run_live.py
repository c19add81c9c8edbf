"""``recorder run --live``: what is refused before anything is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.cli import main
from recorder.recording import preflight

CONFIG = """\
version: 1
session: {root: sessions}
live: {port: 0}
sensors:
  lidar: {driver: fakes.good, source: "sim:"}
"""


def test_without_the_extra_nothing_is_recorded(
    fakes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight, "LIVE_MODULES", ("json", "no_such_web_server"))
    path = tmp_path / "rig.yaml"
    path.write_text(CONFIG)
    assert main(["run", str(path), "--live"]) == 2
    assert "--live needs the extra live" in capsys.readouterr().err
    assert not (tmp_path / "sessions").exists()
