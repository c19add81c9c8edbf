"""MCAP files of whole sessions: the reader of the format's project, messages by their schemas.

`test_mcap_ros2.py` has the readers of ROS 2.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mcap.reader import NonSeekingReader, make_reader

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.session.journal.journal import CommitTimes
from recorder.session.reader import Session
from tests.archives.mcap.reading import Read, read

pytestmark = pytest.mark.conformance

SAMPLES = {
    "camera": "/camera/image",
    "lidar": "/lidar/points",
    "radar": "/radar/detections",
    "imu": "/imu",
    "lidar_imu": "/lidar_imu",
}


@pytest.fixture(scope="module")
def path(session: Path) -> Path:
    (result,) = finalize(session, [ArchiveRequest("mcap", {"iq": True})])
    return result.files[0]


@pytest.fixture(scope="module")
def found(path: Path) -> Read:
    return read(path)


def test_every_sample_is_there_with_its_stamps(session: Path, found: Read) -> None:
    with Session(session) as opened:
        commits = CommitTimes(opened.path, opened.header)
        assert commits.problem == ""
        for name, topic in SAMPLES.items():
            if name not in opened.streams:  # not every recording has it
                continue
            stream, messages = opened.streams[name], found.messages[topic]
            assert [m.log_ns for m in messages] == stream.t_ns.tolist()
            assert stream.seq is not None
            assert [m.sequence for m in messages] == stream.seq.tolist()
            expected = [commits.of(name, t_ns) for t_ns in stream.t_ns.tolist()]
            assert None not in expected  # the session was closed: a commit has each
            assert [m.publish_ns for m in messages] == expected


def test_both_readers_of_the_project_agree_with_crcs(path: Path) -> None:
    with path.open("rb") as file:
        stream = NonSeekingReader(file, validate_crcs=True)
        scanned = {
            (c.topic, m.sequence, m.log_time, m.publish_time, m.data)
            for _, c, m in stream.iter_messages(log_time_order=False)
        }
    with path.open("rb") as file:
        indexed = {
            (c.topic, m.sequence, m.log_time, m.publish_time, m.data)
            for _, c, m in make_reader(file, validate_crcs=True).iter_messages()
        }
    assert scanned == indexed


def test_records_and_files_are_there(session: Path, path: Path) -> None:
    with path.open("rb") as file:
        reader = make_reader(file)
        records = {found.name: found.metadata for found in reader.iter_metadata()}
        attached = {found.name: found.data for found in reader.iter_attachments()}
    assert records["foxglove"]["deviceName"]
    assert records["recorder"]["session"] == session.name
    for name in ("config.yaml", "lidar/lidar.json", "radar/radar.json"):
        assert attached[name] == (session / name).read_bytes()
