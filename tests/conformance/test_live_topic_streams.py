"""Live topics of a node of rclpy, recorded as they are, also one that appears in mid-session."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recorder.common.clock import SystemClock
from recorder.recording.foreground import Foreground
from recorder.recording.sessions.session_plan import plan_session
from recorder.recording.supervisor.driver_registry import load
from recorder.recording.supervisor.sensors import Status
from recorder.session.reader import Session
from recorder.session.validation import validate

pytestmark = pytest.mark.conformance
pytest.importorskip("rclpy", reason="rclpy is not installed")

SCRIPT = Path(__file__).with_name("topic_talker.py")
COUNT = 150
PROFILES = {"FASTDDS_BUILTIN_TRANSPORTS": "UDPv4"}


@pytest.fixture
def talker(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A node in a domain of its own."""
    for name, value in PROFILES.items():
        monkeypatch.setenv(name, value)
    domain = random.randrange(20, 100)
    command = [sys.executable, str(SCRIPT), str(domain)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | PROFILES, **pipes) as process:
        yield domain, process
        process.kill()


def test_each_message_is_recorded_or_counted(
    tmp_path: Path, talker: tuple[int, subprocess.Popen[str]]
) -> None:
    domain, process = talker
    config = tmp_path / "config.yaml"
    entry = f'{{driver: topics, source: "ros2:{domain}", topics: [/chat, /late, /latched]}}'
    config.write_text(f"version: 1\nsensors:\n  ros: {entry}\n")
    loaded = load(config)
    plan = plan_session(loaded, "drive", exact_name=True)
    plan.root = str(tmp_path / "sessions")
    told = False

    def follow(status: Status) -> None:
        nonlocal told
        if not told:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            told = True
        late = status.streams.get("ros_late", {})
        if late.get("samples", 0) + sum(late.get("lost", {}).values()) >= COUNT:
            foreground.stop("all is there")

    with Foreground(loaded, SystemClock(), lambda *_, **__: None) as foreground:
        foreground.arm()
        foreground.start(plan)
        session_path = foreground.record(follow).session
    assert process.stdout is not None
    sent: dict[str, list[str]] = json.loads(process.stdout.readline())
    assert not validate(session_path, deep=True).problems
    with Session(session_path) as session:
        assert sorted(session.streams) == ["ros_chat", "ros_latched", "ros_late"]
        lost = {e["stream"]: e["count"] for e in session.events() if e["type"] == "lost"}
        for topic, digests in sent.items():
            name = f"ros_{topic.strip('/')}"
            stream = session.streams[name]
            numbers = stream.channels["number"].read(0, len(stream)).tolist()
            found = [
                hashlib.sha256(stream.channels["message"].encoded(k)).hexdigest()
                for k in range(len(stream))
            ]
            assert found == [digests[number - 1] for number in numbers]
            assert len(found) + lost.get(name, 0) == len(digests)
            about = json.loads((session_path / name / "topic.json").read_text())
            assert about["type"] == "std_msgs/msg/String"
            assert "string data" in about["definition"]
            assert about["type_hash"].startswith("RIHS01_df668c74")
