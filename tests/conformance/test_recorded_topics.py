"""Bags that rosbags writes, imported and packed again: rosbags reads the same messages."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.session.validation import validate
from tests.acceptance.command import recorder

pytestmark = pytest.mark.conformance
decoder = pytest.importorskip("mcap_ros2.decoder", reason="mcap-ros2-support is not installed")

ROOT = Path(__file__).parents[2]
ROSBAGS = ROOT / ".venv-rosbags/bin/python"


def rosbags(*words: object) -> list[Any]:
    """Topic, type, type's hash, log time and digest of each message that the program prints."""
    if not ROSBAGS.is_file():
        pytest.skip(f"needs rosbags in {ROSBAGS.parent.parent.name}: make conformance")
    script = ROOT / "tests/conformance/topic_bags.py"
    command = [str(ROSBAGS), str(script), *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_topics_come_back_as_rosbags_wrote_them(tmp_path: Path, storage: str) -> None:
    written = rosbags("write", storage, tmp_path / "bag")
    assert len(written) == 400
    ran = recorder("import", tmp_path / "bag", "--root", tmp_path / "sessions")
    assert ran.code == 0, ran.complaints
    (session,) = (tmp_path / "sessions").iterdir()
    assert not validate(session, deep=True).problems
    request = ArchiveRequest("mcap", {"profile": "ros2"})
    (result,) = finalize(session, [request], out=tmp_path / "out")
    (folder,) = result.files
    found = [each for each in rosbags("read", folder) if each[0] in {w[0] for w in written}]
    assert found == written
    (path,) = folder.glob("*.mcap")
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True, decoder_factories=[decoder.DecoderFactory()])
        decoded = Counter(channel.topic for _, channel, _, _ in reader.iter_decoded_messages())
    assert all(decoded[topic] == count for topic, count in Counter(w[0] for w in written).items())
