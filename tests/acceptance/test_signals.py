"""Signals in the middle of a session."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.acceptance.command import TWO_IMUS, Ran, assert_nothing_lost, assert_sound, here
from tests.kills import Recording


@pytest.mark.parametrize(
    ("number", "everywhere"),
    [
        pytest.param(signal.SIGINT, True, id="ctrl-c"),
        pytest.param(signal.SIGINT, False, id="sigint", marks=pytest.mark.campaign),
        pytest.param(signal.SIGTERM, False, id="sigterm", marks=pytest.mark.campaign),
    ],
)
def test_a_signal_ends_a_session_cleanly(
    tmp_path: Path, number: signal.Signals, everywhere: bool
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(TWO_IMUS)
    recording = Recording(config, "s", 3600.0, "second")
    try:
        recording.wait_for_samples()
        # A terminal sends it to all processes.
        for process in (*(recording.children() if everywhere else ()), recording.process):
            process.send_signal(number)
        code, stderr = recording.finish()
    finally:
        recording.process.kill()
    assert (code, Ran(code, "", stderr.splitlines()).complaints) == (0, [])
    assert f"ended     by a signal: {number.name}" in here("info", recording.path).out
    assert_nothing_lost(recording.path)
    assert_sound(recording.path)
