"""Sessions of a machine whose clock stood before 1970, or before the DOS times of 1980."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.common.errors import RecorderError
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.reader import Session
from tests.archives.edgefirst.rig import FULL_CALIBRATION
from tests.archives.ncore.packer_rig import rig
from tests.manual_clock import ManualClock
from tests.recording.writer.vrs_session import Recording

BEFORE_1970, IN_1970 = -1_000_000_000_000_000, 5_000_000_000
UNSIGNED = {"ncore": "begins before 1970: -1000000", "mcap": "a time .* that no message can hold"}
"""Archives whose times have no sign: uint64 of NVIDIA's NCore V4, and of MCAP (mcap.dev/spec)."""


@pytest.mark.parametrize("archive", ["ncore", "edgefirst", "l5kit", "vrs", "mcap"])
@pytest.mark.parametrize("start_ns", [BEFORE_1970, IN_1970])
def test_a_session_is_packed_or_refused_with_its_reason(
    archive: str, start_ns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.session.build.START_NS", start_ns)
    builder = rig(tmp_path / "drive", 0.5)
    (builder.path / "calibration.yaml").write_text(FULL_CALIBRATION)
    path = builder.close()
    if start_ns < 0 and archive in UNSIGNED:
        with pytest.raises(RecorderError, match=f"{path}: .*{UNSIGNED[archive]}"):
            list(finalize(path, [ArchiveRequest(archive)]))
        assert not (path / "_archives").exists() or not any((path / "_archives").rglob("*.*"))
    else:
        (result,) = finalize(path, [ArchiveRequest(archive)])
        assert result.files and all(file.exists() for file in result.files)


@pytest.mark.parametrize("start_ns", [BEFORE_1970, IN_1970])
def test_a_session_is_recorded_with_its_vrs_file(
    start_ns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The creation id of a VRS file has no sign (FileFormat.h of facebookresearch/vrs)."""
    monkeypatch.setattr(ManualClock, "realtime_ns", lambda clock: start_ns + clock.monotonic_ns())
    recording = Recording(tmp_path, ["imu"])
    assert isinstance(recording.writer, SessionWriter)
    recording.declare()
    recording.data("imu", 5)
    path = recording.end()
    assert (path / "session.vrs").exists()
    with Session(path) as session:
        assert session.start_ns == start_ns + 5_000_000_000
        assert len(session.streams["imu"]) == 5
