"""What `check` finds out about the disk, the sensors and the machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.settings import SensorEntry, StorageSettings
from recorder.recording.host.disk import DiskSpeed, FileSystem
from recorder.recording.preflight import (
    check_root,
    disk_findings,
    sensor_findings,
)

STORAGE = StorageSettings(200, 0.001, 256.0, False)
EXT4 = FileSystem(Path("/"), "ext4", "/dev/x", None)
STREAM = StreamSpec("imu", (ChannelSpec("x", "raw", "f4"),), rate_hz=100.0)


def entry(**more: Any) -> SensorEntry:
    return SensorEntry("imu", "xsens", "sim", "", {}, **more)


@pytest.mark.parametrize(
    ("speed", "problems", "warnings"),
    [
        (DiskSpeed(500e6, 0.01, 100), [], []),
        (DiskSpeed(50e6, 0.01, 100), [], ["less than twice what the sensors give (30)"]),
        (DiskSpeed(20e6, 0.01, 100), ["takes 20 MB/s, the sensors give 30"], []),
        (DiskSpeed(500e6, 9.0, 100), [], ["syncs take up to 9.00 s: 282 MB would wait"]),
    ],
)
def test_a_disk_against_a_rig_of_30_megabytes_a_second(
    speed: DiskSpeed, problems: list[str], warnings: list[str]
) -> None:
    found = disk_findings(EXT4, speed, STORAGE, 30e6)
    for said, expected in zip(found, (problems, warnings), strict=True):
        assert len(said) == len(expected)
        assert all(text in sentence for text, sentence in zip(expected, said, strict=True))


def test_a_file_system_that_one_should_not_record_to() -> None:
    stick = FileSystem(Path("/media/stick"), "exfat", "/dev/sdb1", "exFAT has no journal")
    problems, (warning,) = disk_findings(stick, None, STORAGE, 0.0)
    assert not problems and warning == "/media/stick is exfat, exFAT has no journal"


@pytest.mark.parametrize(("more", "good"), [(-1, False), (0, True), (1, True)])
def test_a_root_with_just_as_much_as_has_to_stay_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, good: bool
) -> None:
    free = STORAGE.min_free_bytes + more
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, free))
    report = check_root(tmp_path / "new" / "root", STORAGE)
    assert (report.free_bytes, report.problem is None) == (free, good)
    assert good or "less than storage.min_free_gb (0.001)" in str(report.problem)


def test_a_rate_that_cannot_be_kept() -> None:
    assert sensor_findings(entry(min_rate=95.0), (STREAM,)) == []
    ((key, message),) = sensor_findings(entry(min_rate=120.0), (STREAM,))
    assert (key, message) == ("min_rate", "120 Hz, but the source gives 100 Hz at best")
