"""A session replayed as topics: rclpy and zenoh-ros2-sdk receive the messages of its bag."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recorder.formats.ros2.definitions import CLOCK, IMU, STRING, TRANSFORMS, definition
from tests.conformance.topics import HERE, PROFILES, ROOT
from tests.recording.topic_sessions import LATCHED, STRING_HASH, drive, read_bag
from tests.support.waiting import wait_until

pytestmark = pytest.mark.conformance

CLOCK_HASH = "RIHS01_692f7a66e93a3c83e71765d033b60349ba68023a8c689a79e48078bcb5c58564"
TF_HASH = "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087"
IMU_HASH = "RIHS01_7d9a00ff131080897a5ec7e26e315954b8eae3353c3f995c55faf71574000b5b"
IMAGE = "sensor_msgs/msg/CompressedImage"
Message = list[Any]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drive(tmp_path_factory.mktemp("root") / "rig")


@contextmanager
def listening(script: str, *words: object) -> Iterator[Iterator[Message]]:
    """Run a script that subscribes; give its messages, after it is ready."""
    command = [sys.executable, str(HERE / script), *map(str, words)]
    environment = os.environ | PROFILES | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = map(json.loads, process.stdout)
        assert next(said) == ["ready"]
        try:
            yield said
        finally:
            process.kill()


def replay(session: Path, target: str, awaited: Iterable[str], *options: str) -> tuple[int, str]:
    """Replay to the end; return exit code and complaints."""
    command = [sys.executable, "-m", "recorder", "replay", str(session), "--to", target]
    command += ["--await", ",".join(awaited), *options]
    environment = os.environ | PROFILES | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    return ran.returncode, ran.stderr


def gather(said: Iterator[Message], wanted: Mapping[str, int]) -> dict[str, list[Message]]:
    """Return messages by topic, until each has as many as are wanted."""
    found: dict[str, list[Message]] = defaultdict(list)
    while any(len(found[name]) < count for name, count in wanted.items()):
        name, *rest = next(said)
        found[name].append(rest)
    return found


def on_wire(data: bytes) -> str:
    """Return what arrives: RTPS sends multiples of four bytes."""
    return (data + bytes(-len(data) % 4)).hex()


def count_ticks(complaints: str) -> int:
    (count,) = re.findall(r"/clock (\d+)", complaints)
    return int(count)


def check_clock(ticks: Sequence[Sequence[int]], bag: Mapping[str, list[tuple[int, bytes]]]) -> None:
    """Check times of speed 2: the first one is that of the first message, then 20 ms apart."""
    times = [seconds * 1_000_000_000 + nanoseconds for seconds, nanoseconds in ticks]
    stamps = [t_ns for messages in bag.values() for t_ns, _ in messages]
    assert times == list(range(min(stamps), max(stamps) + 1, 20_000_000))


def test_rclpy_receives_the_messages_of_the_bag_and_a_clock(session: Path, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="needs the extra ros2")
    bag = read_bag(session, tmp_path)
    topics = {
        "/imu/data": (IMU, "", False),
        "/camera/image/compressed": (IMAGE, "", False),
        "/chat": (STRING, "", False),
        "/tf": (TRANSFORMS, TF_HASH, False),
        LATCHED: (STRING, "", True),
        "/clock": (CLOCK, "", False),
    }
    domain = random.randrange(20, 100)
    with listening("ros2_listener.py", domain, json.dumps(topics)) as said:
        code, complaints = replay(session, f"ros2:{domain}", topics, "--speed", "2")
        assert code == 0, complaints
        ticks = count_ticks(complaints)
        wanted = {name: len(bag[name]) for name in topics if name != "/clock"}
        found = gather(said, wanted | {"/clock": ticks})
    for name, count in wanted.items():
        assert [message[0] for message in found[name]] == [on_wire(data) for _, data in bag[name]]
        assert f"{name} {count}" in complaints
    check_clock([message[1:] for message in found["/clock"]], bag)
    assert "/status in json, not in cdr" in complaints


@pytest.fixture
def router() -> Iterator[tuple[int, Any]]:
    """A router of Zenoh: its port and session."""
    pytest.importorskip("zenoh", reason="needs the extra zenoh")
    from tests.conformance.test_zenoh_topics import free_port, open_router

    port = free_port()
    session = open_router(port)
    yield port, session
    session.close()


def test_zenoh_ros2_sdk_receives_the_messages_of_the_bag_and_a_clock(
    session: Path, tmp_path: Path, router: tuple[int, Any]
) -> None:
    bag = read_bag(session, tmp_path)
    kinds = {
        "/imu/data": (IMU, IMU_HASH),
        "/chat": (STRING, STRING_HASH),
        "/tf": (TRANSFORMS, TF_HASH),
        LATCHED: (STRING, STRING_HASH),
        "/clock": (CLOCK, CLOCK_HASH),
    }
    topics = {
        name: (kind, definition(kind).decode(), known, name == LATCHED)
        for name, (kind, known) in kinds.items()
    }
    port = router[0]
    with listening("zenoh_listener.py", 7, port, json.dumps(topics)) as said:
        target = f"zenoh:tcp/127.0.0.1:{port}/7"
        code, complaints = replay(session, target, topics, "--speed", "2")
        assert code == 0, complaints
        ticks = count_ticks(complaints)
        wanted = {name: len(bag[name]) for name in topics if name != "/clock"}
        found = gather(said, wanted | {"/clock": ticks})
    for name, count in wanted.items():
        assert [message[0] for message in found[name]] == [data.hex() for _, data in bag[name]]
        assert [message[1] for message in found[name]] == list(range(1, count + 1))
    check_clock([message[2:] for message in found["/clock"]], bag)
    assert found[LATCHED][0][2] == "yard"


@pytest.mark.parametrize("awaited", [True, False])
def test_ctrl_c_ends_a_replay_and_its_process(
    session: Path, router: tuple[int, Any], awaited: bool
) -> None:
    port, zenoh_session = router
    target = f"zenoh:tcp/127.0.0.1:{port}/7"
    command = [sys.executable, "-m", "recorder", "replay", str(session), "--to", target]
    command += ["--await", "/chat"] if awaited else ["--speed", "0.001"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as ran:

        def tokens() -> list[str]:
            found = zenoh_session.liveliness().get("@ros2_lv/7/**")
            return [str(reply.ok.key_expr) for reply in found if reply.ok is not None]

        if awaited:
            wait_until("the publishers are there", tokens)
        else:
            assert ran.stdout is not None and ran.stdout.readline()
        os.killpg(ran.pid, signal.SIGINT)
        _, complaints = ran.communicate()
    assert (ran.returncode, "Traceback" in complaints) == (0, False), complaints
    wait_until("the publishers are gone", lambda: not tokens())
