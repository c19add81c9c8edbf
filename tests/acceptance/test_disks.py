"""Disks that refuse: full and read-only roots, and a disk that fills while it is recorded to.

Real file systems, mounted in a mount namespace of the command's own; skipped where neither root
nor a user namespace allows that.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.model import SimulatedRadar
from recorder.session.journal.journal import read_journal
from tests.acceptance.command import (
    Ran,
    assert_nothing_lost,
    assert_sound,
    column,
    contents,
    here,
    namespace,
    recorder,
    write_config,
)

RADAR = 'radar: {driver: mmwave, source: "sim:"}'
IMU = 'imu: {driver: xsens, source: "sim:", rate: 100}'
MOUNT = 'mount -t tmpfs -o size=12m none "$root"; cp -a "$seed/old" "$root"'


class Disk:
    """A root on a file system that only one command sees; what it leaves there is kept.

    Attributes:
        root: where the file system is mounted.
        left: what was on it when the command had ended.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.left = folder / "left"
        self._seed = folder / "seed"
        self.root.mkdir()
        (self._seed / "old/imu").mkdir(parents=True)
        (self._seed / "old/imu/ts").write_bytes(bytes(80))
        self.before = contents(self._seed)

    def run(self, mount: str, config: Path, *args: object) -> Ran:
        """``recorder run`` onto the root, which `mount` has made what it is to be."""
        words = namespace()
        if words is None:
            pytest.skip("needs to mount a tmpfs (root, or user namespaces), which is refused here")
        script = (
            f"set -e; root={self.root}; seed={self._seed}; {mount}; set +e; "
            f'"$@"; code=$?; cp -a "$root" {self.left} || exit 99; exit $code'
        )
        return recorder(
            "run", config, "--root", self.root, *args, before=[*words, "sh", "-c", script, "sh"]
        )

    @property
    def old_session(self) -> dict[str, str]:
        """The contents of the session that was there before."""
        found = contents(self.left)
        return {path: digest for path, digest in found.items() if path.startswith("old/")}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


REFUSED = {  # command that breaks the file system, and the end of the error
    "full": (
        'cat /dev/zero > "$root/fill" 2>&- || true',
        " cannot be written to: No space left on device",
    ),
    "read-only": (
        'mount -o remount,ro,bind "$root"',
        " cannot be written to: Read-only file system",
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_root_that_cannot_be_recorded_to(disk: Disk, tmp_path: Path, how: str) -> None:
    config = write_config(tmp_path / "c.yaml", IMU)
    done, said = REFUSED[how]
    ran = disk.run(f"{MOUNT}; {done}", config, "--name", "new", "--duration", 1)
    assert (ran.code, ran.out) == (1, "")
    assert ran.complaints == [f"recorder run: {disk.root}{said}"]
    assert disk.old_session == disk.before
    assert {path.name for path in disk.left.iterdir()} <= {"fill", "old"}


def is_seen_by_commit(disk: Disk, ran: Ran) -> bool:
    """Return whether a commit saw the disk become full, before the writer met it."""
    where = f"recorder run: {disk.root}/new:"
    if ran.code == 1:
        assert ran.complaints == [f"{where} sealed at its last commit: No space left on device"]
        return False
    assert ran.code == 3
    *others, ended = ran.complaints
    assert ended.startswith(f"{where} ended, since its disk is nearly full: ")
    assert not [text for text in others if f"{disk.root}/new" not in text]
    return True


def check_committed(disk: Disk) -> None:
    """All that the session's journal has must be there, and what was there before."""
    assert disk.old_session == disk.before
    committed = read_journal(disk.left / "new/_recorder/commits").positions
    frames, samples = committed["radar"]["samples"], committed["imu"]["samples"]
    assert frames >= 1 and samples >= 2
    info = here("info", disk.left / "new", "--format", "json")
    assert info.code == 0, info.err
    assert info.result["streams"]["radar"]["samples"] >= frames
    assert info.result["streams"]["imu"]["samples"] >= samples
    iq = disk.left / "new/radar/iq"
    size = int(np.prod(SIM_CHIRP.shape))
    assert iq.stat().st_size >= frames * size * 2
    radar = SimulatedRadar(SIM_CHIRP, "qqii")
    for k in range(frames):
        frame = np.fromfile(iq, "<i2", size, offset=k * size * 2).reshape(SIM_CHIRP.shape)
        np.testing.assert_array_equal(frame, radar.frame(k))
    seq = column(disk.left / "new", "imu", "seq")[:samples]
    np.testing.assert_array_equal(seq, np.arange(samples))


@pytest.mark.campaign
def test_a_disk_that_the_session_fills(disk: Disk, tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.yaml", f"{RADAR}\n{IMU}")
    if is_seen_by_commit(disk, disk.run(MOUNT, config, "--name", "new", "--duration", 30)):
        assert_nothing_lost(disk.left / "new")
        assert_sound(disk.left / "new")
    check_committed(disk)


@pytest.mark.campaign(weight=5)
def test_a_disk_that_somebody_fills_in_mid_session(disk: Disk, tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.yaml", f"{RADAR}\n{IMU}")
    mount = MOUNT.replace("12m", "200m")
    mount += '; ( while [ ! -s "$root/new/radar/iq" ]; do sleep 0.05; done; sleep 0.5; '
    mount += 'cat /dev/zero > "$root/fill" 2>&- ) & true'
    is_seen_by_commit(disk, disk.run(mount, config, "--name", "new", "--duration", 30))
    check_committed(disk)
