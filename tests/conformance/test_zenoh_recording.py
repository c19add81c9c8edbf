"""Topics of zenoh-ros2-sdk's publishers, recorded as they are and by a typed driver."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.common.clock import SystemClock
from recorder.recording.foreground import Foreground
from recorder.recording.sessions.session_plan import plan_session
from recorder.recording.supervisor.driver_registry import load
from recorder.recording.supervisor.sensors import Status
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.conformance.topics import HERE

pytestmark = pytest.mark.conformance
pytest.importorskip("zenoh", reason="needs the extra zenoh")

from tests.conformance.test_zenoh_topics import free_port, open_router  # noqa: E402

DOMAIN, COUNT = 9, 120
STREAMS = ("imu", "ros_chat")


@pytest.fixture
def node() -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A router's port, and a process with publishers."""
    port = free_port()
    router = open_router(port)
    words = [sys.executable, str(HERE / "zenoh_node.py"), str(DOMAIN), str(port), str(COUNT)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as process:
        yield port, process
        process.kill()
    router.close()


def test_each_message_is_recorded(tmp_path: Path, node: tuple[int, subprocess.Popen[str]]) -> None:
    port, process = node
    place = f"zenoh:tcp/127.0.0.1:{port}/{DOMAIN}"
    config = tmp_path / "config.yaml"
    config.write_text(
        "version: 1\nsensors:\n"
        f'  ros: {{driver: topics, source: "{place}", topics: [/chat, /silent]}}\n'
        f'  imu: {{driver: imu, source: "{place}#/imu"}}\n'
    )
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
        streams = [status.streams.get(name, {}) for name in STREAMS]
        if all(s.get("samples", 0) + sum(s.get("lost", {}).values()) >= COUNT for s in streams):
            foreground.stop("all is there")

    with Foreground(loaded, SystemClock(), lambda *_, **__: None) as foreground:
        foreground.arm()
        foreground.start(plan)
        path = foreground.record(follow).session
    assert process.stdout is not None
    sent: dict[str, list[Any]] = json.loads(process.stdout.readline())
    assert not validate(path, deep=True).problems
    with Session(path) as session:
        lost = [event for event in session.events() if event["type"] == "lost"]
        absent = [event["stream"] for event in lost if event["cause"] == "absent"]
        assert absent == ["ros_silent"], "that is named in the config and has no publisher"
        assert {event["cause"] for event in lost} <= {"device", "absent"}
        assert not any(event["count"] for event in lost)
        chat = session.streams["ros_chat"]
        messages = [chat.channels["message"].encoded(k) for k in range(len(chat))]
        assert [hashlib.sha256(each).hexdigest() for each in messages] == sent["chat"]
        assert chat.channels["number"].read(0, COUNT).tolist() == list(range(COUNT))
        imu = session.streams["imu"]
        assert imu.channels["acc"].read(0, COUNT)[:, 0].tolist() == sent["imu"]
        numbers = np.arange(COUNT)
        stamps = (1_700_000_000 + numbers) * 1_000_000_000 + numbers
        assert imu.channels["t_dev"].read(0, COUNT).tolist() == stamps.tolist()
        about = json.loads((path / "ros_chat" / "topic.json").read_text())
        assert about["type"] == "std_msgs/msg/String"
        assert about["definition"].strip() == "string data"
