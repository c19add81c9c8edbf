"""Signals in the middle of a session."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.acceptance.command import (
    assert_nothing_lost,
    assert_sound,
    interrupted,
    write_config,
)


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [
        (signal.SIGINT, True),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.campaign),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.campaign),
    ],
    ids=["ctrl-c", "sigint", "sigterm"],
)
def test_a_signal_ends_a_session_cleanly(
    tmp_path: Path, number: signal.Signals, whole_group: bool
) -> None:
    config = write_config(
        tmp_path / "c.yaml",
        """
        second: {driver: xsens, source: "sim:", rate: 100}
        imu: {driver: xsens, source: "sim:", rate: 100}
        """,
    )

    def running(session: Path) -> bool:
        files = [session / "imu/acc", session / "second/acc"]
        return all(file.exists() and file.stat().st_size for file in files)

    ran = interrupted(
        *(config, "--root", tmp_path / "root", "--name", "s", "--format", "json"),
        when=running,
        number=number,
        whole_group=whole_group,
    )
    assert (ran.code, ran.complaints) == (0, [])
    streams = ran.result["streams"]
    assert {s["ended"] for s in streams.values()} == {"stopped"}
    assert all(s["samples"] >= 2 for s in streams.values())
    assert_nothing_lost(tmp_path / "root/s")
    assert_sound(tmp_path / "root/s")
