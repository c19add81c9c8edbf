"""``recorder run`` on a device that begins to lose what it is given, and no reboot after it.

Drivers write down what was acknowledged (`tests.faults.counting`), beside that device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.loop_device import LoopDevice
from tests.faults.test_campaign import CONFIG, STREAMS, hold_against, promises
from tests.faults.test_device_errors import BLOCK, Disk
from tests.kills import Recording
from tests.support.events import events
from tests.support.waiting import wait_until

SECONDS = 60.0  # unless it ends before
COMMITS = 20  # by then most files have the block that lists their extents
# Zeros in such a stream are samples as good as any to whoever only counts bytes.
RAW = """  d:
    {{driver: tests.faults.counting, source: "sim:", rate: 2000, batch: 20, format: "", log: {log}}}
"""


@contextmanager
def record(device: LoopDevice, folder: Path) -> Iterator[Recording]:
    """A session with some commits."""
    log = folder / "log"
    log.mkdir()
    config = folder / "rig.yaml"
    text = CONFIG.replace("storage:", f"{RAW}storage:").format(log=log)
    config.write_text(text.replace("root: sessions", f"root: {device.root}/root"))
    recording = Recording(config, "s", SECONDS, "d", device.words)
    recording.path = device.here / "root/s"
    journal = recording.path / "_recorder/commits"
    try:
        recording.wait_for_samples()
        wait_until("commits", lambda: journal.read_bytes().count(b"commit") >= COMMITS)
        yield recording
    finally:
        if recording.process.returncode is None:
            recording.process.kill()  # its children die with it
            recording.finish()


def hold_against_promises(disk: Disk, folder: Path, where: str) -> None:
    """After one more mount all that is there was sent, and what was acknowledged is there."""
    disk.device.remount()
    path = disk.root / "s"
    code, result, _ = disk.command("validate", "--deep")
    assert (code, result["problems"]) == (0, []), where
    for name in (*STREAMS, "d"):
        reported = events(path, type="lost", stream=name)
        hold_against(path, name, promises(folder / "log", name), reported, where)


@pytest.mark.campaign(weight=8)
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("remounted", [False, True])
def test_a_device_that_loses_what_is_written(
    device: LoopDevice, tmp_path: Path, killed: bool, remounted: bool
) -> None:
    with record(device, tmp_path) as recording:
        raw, process = recording.path / "d/raw", recording.process
        blocks = raw.stat().st_size // BLOCK
        device.break_device()
        if killed:  # before the writer knows, or while it seals
            wait_until(
                "a new block",
                lambda: raw.stat().st_size // BLOCK > blocks or process.poll() is not None,
            )
            recording.kill_all(0, 0.0)
        code, stderr = recording.finish()
    assert "Traceback" not in stderr
    if not killed:
        assert code == 1 and f"{device.root}/root/s: sealed at its last commit: " in stderr
    if killed or remounted:
        device.write_back()
    device.heal()
    if remounted or device.has_stopped:  # it may have lost a block of its own
        device.remount()
    disk = Disk(device)
    disk.recover()
    hold_against_promises(disk, tmp_path, stderr)
