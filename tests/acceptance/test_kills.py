"""SIGKILL at seeded moments under load: what the promise says, with real processes.

The simulated sensors give the same bytes in every run, so that a session whose writer was killed
can be held against one that nothing happened to, file by file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from recorder.session.journal.journal import walk_journal
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.acceptance.command import here
from tests.kills import PATIENCE_S, Recording

CONFIG = """
version: 1
session: {root: sessions}
sensors:
  camera: {driver: camera, source: "sim:", width: 320, height: 240, fps: 30}
  thermal: {driver: camera, source: "sim:", pixel_format: Y12P, width: 160, height: 120, fps: 30}
  lidar: {driver: ouster, source: "sim:", beams: 32, mode: 512x10}
  radar: {driver: mmwave, source: "sim:", radar: {frame_length: 16, adc_samples: 64}}
  imu: {driver: xsens, source: "sim:", rate: 400}
storage: {sync_interval_ms: 50, min_free_gb: 0, buffer_mb: 512}  # holds all of it: never refuses
"""
SECONDS = 3
EXPECTED = {
    "camera": 30 * SECONDS,
    "thermal": 30 * SECONDS,
    "lidar": 10 * SECONDS,
    "lidar_imu": 100 * SECONDS,
    "radar": 20 * SECONDS,
    "imu": 400 * SECONDS,
}
TIMED = {"ts", "t_mono"}  # these carry the session's own start


def payload(session: Path, streams: Iterable[str] = EXPECTED) -> dict[str, bytes]:
    return {
        str(path.relative_to(session)): path.read_bytes()
        for stream in streams
        for path in sorted((session / stream).iterdir())
        if path.name not in TIMED
    }


def begin(config: Path, name: str) -> Recording:
    return Recording(config, name, SECONDS, "camera")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kills") / "rig.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def undisturbed(config: Path) -> Path:
    hurried = config.with_name("hurried.yaml")
    hurried.write_text(CONFIG.replace('source: "sim:"', 'source: "sim:", pace: max'))
    recording = begin(hurried, "undisturbed")
    code, stderr = recording.finish()
    assert code == 0, stderr
    with Session(recording.path) as session:
        assert {n: len(s) for n, s in session.streams.items()} == EXPECTED
    return recording.path


@pytest.mark.campaign(weight=6)
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_writer_loses_nothing(config: Path, undisturbed: Path, seed: int) -> None:
    recording = begin(config, f"writer-{seed}")

    kills = recording.kill_at_random(seed, lambda line: "recorder.recording.writer" in line, 3)

    code, stderr = recording.finish()
    assert kills >= 2
    assert code == 0, stderr
    assert stderr.count("writer ended with code -9") == kills
    here, there = payload(recording.path), payload(undisturbed)
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []
    assert validate(recording.path, deep=True).sound
    with Session(recording.path) as session:
        restarts = [e for e in session.events() if e["type"] == "writer"]
        assert sum(e.get("merged", 1) for e in restarts) >= 1
        assert not [e for e in session.events() if e["type"] == "lost"]


@pytest.mark.campaign(weight=10)
def test_what_dies_with_the_supervisor_is_recovered_and_packed(
    config: Path,
) -> None:
    recording = begin(config, "supervisor")
    recording.wait_for_samples()
    assert len(recording.children()) == 6

    recording.kill_supervisor(seed=0, within_s=0.0)

    recording.process.communicate(timeout=PATIENCE_S)
    with Session(recording.path) as session:  # not closed, but whole samples
        assert session.state == "recording"
        assert not session.live
        # A stream whose declaration no sample followed yet is not kept.
        kept = {name: n for name, stream in session.streams.items() if (n := len(stream))}
        for stream in session.streams.values():
            data = stream.read(0, len(stream))
            assert all(len(values) == len(stream) for values in data.values())
    *_, (last, _, state) = walk_journal(recording.path / "_recorder" / "commits")
    assert last.kind in ("commit", "snapshot", "epoch", "stream") and state.closed is None

    recovered = here("recover", recording.path, "--format", "json")
    assert recovered.code == 3, recovered.err  # how much the kill cost, nobody can count
    assert validate(recording.path, deep=True).sound
    with Session(recording.path) as session:
        assert session.state == "recovered"
        assert {name: len(stream) for name, stream in session.streams.items()} == kept
        lost = [event for event in session.events() if event["type"] == "lost"]
        assert not any(event["count"] for event in lost)
        cut = {name for name, count in kept.items() if count < EXPECTED[name]}
        assert {event["stream"] for event in lost} >= cut, kept
    for archive in ("vrs", "mcap"):  # whatever was recorded until then
        packed = here("finalize", recording.path, "--to", archive)
        assert packed.code == 0, packed.err
    for path in (recording.path, *(recording.path / "_archives").iterdir()):
        verified = here("verify", path)
        assert verified.code == 0, verified.out
