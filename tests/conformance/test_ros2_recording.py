"""A node of ROS 2 is recorded as a user would, also while the driver is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.acceptance.command import PROJECT, RECORDER
from tests.conformance.topics import PROFILES, Talker
from tests.support.waiting import wait_until

pytest.importorskip("rclpy", reason="needs the extra ros2")
pytestmark = pytest.mark.conformance

DOMAIN = 131
CONFIG = """version: 1
storage: {{min_free_gb: 0}}
record_format: {{enabled: false}}
sensors:
  imu: {{driver: imu, source: "ros2:{domain}#/imu/data"}}
"""


class Recording:
    """``recorder run`` in the background, while a node talks."""

    def __init__(self, folder: Path) -> None:
        config = folder / "rig.yaml"
        config.write_text(CONFIG.format(domain=DOMAIN))
        self.folder = folder / "sessions/s"
        command = [str(RECORDER), "run", str(config), "--root", str(self.folder.parent)]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--name", "s", "--no-finalize"],
                cwd=PROJECT,
                env=os.environ | PROFILES,
                stderr=log,
            )

    def samples(self) -> int:
        path = self.folder / "imu/ts"
        return path.stat().st_size // 8 if path.exists() else 0

    def wait_for(self, count: int) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, "the recorder has ended"
            return self.samples() >= count

        wait_until(f"{count} samples", ready)

    def kill_driver(self) -> None:
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if "drivers.imu" in child.cmdline():
                child.send_signal(signal.SIGKILL)

    def finish(self) -> tuple[int, Any]:
        """End the recording; return its exit code, and what is known of the stream."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait()
        told = [str(RECORDER), "info", str(self.folder), "--format", "json"]
        ran = subprocess.run(told, check=True, capture_output=True)
        return code, json.loads(ran.stdout)["streams"]["imu"]

    def numbers(self) -> list[int]:
        """Return the numbers that the node wrote into the messages."""
        values = np.fromfile(self.folder / "imu/acc", "<f4").reshape(-1, 3)
        return [int(each) for each in values[:, 0]]


class Speaker:
    """Sends messages until it is told to stop."""

    def __init__(self, talker: Talker) -> None:
        self._talker, self._is_over = talker, threading.Event()
        self._thread = threading.Thread(target=self._speak)
        self._thread.start()

    def _speak(self) -> None:
        while not self._is_over.is_set():
            self._talker.send(names=["p"], seeds=[7], count=20, pause_s=0.005)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.fixture
def talker() -> Iterator[Talker]:
    talker = Talker("ros2_talker.py", DOMAIN)
    kind = "sensor_msgs/msg/Imu"
    talker.open(name="p", topic="/imu/data", kind=kind, reliable=True, cached=False)
    yield talker
    talker.end()


def test_a_node_is_recorded_whole(tmp_path: Path, talker: Talker) -> None:
    speaker = Speaker(talker)
    recording = Recording(tmp_path)
    recording.wait_for(200)
    code, stream = recording.finish()
    speaker.stop()
    numbers = recording.numbers()
    assert (code, stream["lost"]) == (0, {})
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    stamps = np.fromfile(recording.folder / "imu/t_dev", "<u8")
    assert [int(each) for each in stamps] == [n * 1_000_000_000 + 7 for n in numbers]


def test_a_killed_driver_leaves_one_gap_and_an_interval(tmp_path: Path, talker: Talker) -> None:
    speaker = Speaker(talker)
    recording = Recording(tmp_path)
    recording.wait_for(100)
    before = recording.samples()
    recording.kill_driver()
    recording.wait_for(before + 200)
    code, stream = recording.finish()
    speaker.stop()
    steps = np.diff(recording.numbers())
    assert code == 3 and stream["lost"]
    assert (steps >= 1).all() and (steps > 1).sum() <= 1, "each message once, and one gap"


def test_a_draft_names_what_the_node_publishes(talker: Talker) -> None:
    speaker = Speaker(talker)
    ran = subprocess.run(
        [str(RECORDER), "check", "--draft", f"ros2:{DOMAIN}"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | PROFILES,
    )
    speaker.stop()
    assert f'imu_data: {{driver: imu, source: "ros2:{DOMAIN}#/imu/data"}}' in ran.stdout
    assert "sensor_msgs/msg/Imu" in ran.stdout and "Hz, 1 publisher" in ran.stdout
