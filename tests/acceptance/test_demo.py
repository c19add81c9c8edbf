"""The demo's config: four simulated sensors, and every command that looks at what they left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from recorder.bus.sockets import TapSubscriber
from recorder.bus.wire import Kind
from recorder.codecs.streams import StreamSpec
from tests.acceptance.command import (
    DEADLINE_S,
    PROJECT,
    RECORDER,
    assert_nothing_lost,
    assert_sound,
    column,
    here,
    meta,
    recorder,
    relative_ns,
)
from tests.acceptance.conftest import Recorded

COUNTS = {"camera": 30, "imu": 100, "lidar": 10, "lidar_imu": 100, "radar": 20}
PERIODS_NS = {"camera": 1e9 / 30, "imu": 1e7, "lidar": 1e8, "lidar_imu": 1e7, "radar": 5e7}

NOTES = [
    "edgefirst: lidar: 2 of 30 samples of camera have none within 50 ms",
    "l5kit: _cuboids/truth.jsonl: classes without a label of L5Kit's, UNKNOWN there: "
    "building, pole",
    "mcap: lidar: no message has the channels nir",
]


def test_a_second_has_exactly_their_samples(demo: Recorded) -> None:
    session, ran = demo
    assert (ran.code, ran.complaints) == (0, NOTES)
    assert {name: s["samples"] for name, s in ran.result["streams"].items()} == COUNTS
    assert {s["ended"] for s in ran.result["streams"].values()} == {"duration"}
    for stream, period_ns in PERIODS_NS.items():
        mono = relative_ns(session, stream)
        assert mono.min() >= 0 and mono.max() < 1_000_000_000
        assert np.abs(np.diff(mono) - period_ns).max() < 2, stream
    assert_nothing_lost(session)
    assert_sound(session)


def test_it_is_packed_as_every_archive(demo: Recorded) -> None:
    archives = demo[0] / "_archives"
    assert {path.name for path in archives.glob("*/*") if not path.name.startswith(".")} == {
        "demo", "demo.json", "demo.mcap", "demo.ncore4.zarr.itar", "demo.vrs", "demo.zarr"
    }  # fmt: skip
    assert {path.name for path in archives.glob("edgefirst/demo/*")} == {"demo.arrow", "demo.zip"}


def test_the_channels_are_those_of_the_layout(demo: Recorded) -> None:
    session, _ = demo
    shapes = {
        stream: {n: (e["format"], e["type"], e["shape"]) for n, e in meta(session, stream).items()}
        for stream in COUNTS
    }
    for stream, channels in shapes.items():
        assert channels["ts"] == ("raw", "f8", []), stream
        assert channels["seq"] == channels["t_mono"] == ("raw", "u8", []), stream
    assert shapes["camera"]["video.avi"] == ("mjpg", "u1", [720, 1280, 3])
    assert shapes["radar"]["iq"] == ("raw", "i2", [64, 3, 4, 512])
    assert shapes["radar"]["valid"] == ("raw", "u1", [])
    assert shapes["lidar"]["rng"] == ("lzmaf", "u2", [128, 1024])
    assert shapes["imu"]["rot"] == ("raw", "f4", [3])
    assert (session / "radar/radar.json").is_file() and (session / "lidar/lidar.json").is_file()
    assert (column(session, "radar", "valid") == 1).all()


def test_info_and_list(demo: Recorded) -> None:
    session, _ = demo
    info = recorder("info", session, "--format", "json")
    assert info.code == 0
    assert {n: s["samples"] for n, s in info.result["streams"].items()} == COUNTS
    assert info.result["metadata"]["vehicle"] == "simulated"
    for stream, period_ns in PERIODS_NS.items():
        assert abs(info.result["streams"][stream]["rate_hz"] * period_ns / 1e9 - 1) < 1e-6
    text = here("info", session).out
    assert all(stream in text for stream in COUNTS) and "clean" in text
    listed = recorder("list", session.parent, "--format", "json")
    assert listed.code == 0
    (line,) = listed.result["sessions"] if isinstance(listed.result, dict) else listed.result
    assert (line["name"], line["state"], line["lost"]) == ("demo", "clean", 0)
    assert line["streams"] == sorted(COUNTS)


def test_check_names_every_stream() -> None:
    ran = here("check", PROJECT / "configs/demo.yaml", "--format", "json")
    assert ran.code == 0, ran.err
    assert all(f'"{stream}"' in ran.out for stream in COUNTS)


def tapped(endpoint: str) -> tuple[set[bytes], set[bytes]]:
    """Payloads of 20 IMU samples and 3 sweeps from a tap."""
    specs: dict[str, StreamSpec] = {}
    accelerations: set[bytes] = set()
    sweeps: set[bytes] = set()
    with TapSubscriber([endpoint], ["imu", "lidar"]) as tap:
        for message in tap.messages(timeout=DEADLINE_S):
            if message.kind is Kind.JOIN:
                spec = StreamSpec.from_wire(message.values["stream"])
                specs[spec.name] = spec
            elif message.stream in specs:
                names = [c.name for c in specs[message.stream].channels]
                frames = dict(zip(names, map(bytes, message.frames), strict=True))
                if message.stream == "imu":
                    accelerations.add(frames["acc"])
                elif message.stream == "lidar":
                    sweeps.add(frames["rng"])
            if len(accelerations) >= 20 and len(sweeps) >= 3:
                break
    assert len(accelerations) >= 20 and len(sweeps) >= 3
    return accelerations, sweeps


def test_a_replay_reaches_subscribers(demo: Recorded, tmp_path: Path) -> None:
    session, _ = demo
    endpoint = f"ipc://{tmp_path}/tap"
    # A tap is lossy, so it is played round and round until the subscriber has had enough of it.
    with subprocess.Popen(
        [RECORDER, "replay", session, "--speed", "50", "--loop", "--tap", endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as replay:
        try:
            assert replay.stdout is not None
            assert replay.stdout.readline().strip() == endpoint
            accelerations, sweeps = tapped(endpoint)
            replay.terminate()
            _, err = replay.communicate(timeout=DEADLINE_S)
        finally:
            replay.kill()
    assert replay.returncode == 0, err
    recorded = column(session, "imu", "acc").tobytes()
    assert all(acceleration in recorded for acceleration in accelerations)
    stored = (session / "lidar/rng").read_bytes()
    assert all(sweep in stored for sweep in sweeps)  # the encoded frames, as they lie on disk


def test_a_replay_ends_with_the_session(demo: Recorded) -> None:
    ran = recorder("replay", demo[0], "--speed", 50, "--streams", "imu,lidar")
    assert ran.code == 0
    assert ran.err == ["recorder replay: imu 100, lidar 10"]
