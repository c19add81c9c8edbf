"""`recorder emulate`: devices on this machine that the real drivers record from.

What is recorded from the emulated rig is what `sim:` and `pcap:` give of the same world, sample by
sample but for the times; what is injected on the way is what the session counts; a device that goes
is an interval of loss of its own streams, and of no other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from recorder.archives.base import available
from recorder.session.accounts import read_accounts, sum_incomplete
from recorder.session.reader import Session
from recorder.session.verdict import verdict
from tests.acceptance.command import PROJECT, Ran, recorder
from tests.campaigns import Campaign
from tests.support.events import events
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.campaign(weight=20)

CONFIG = """\
version: 1
session: {root: ROOT, name: NAME}
sensors:
  camera: {driver: camera, source: "sim:", width: 320, height: 240, fps: 10, PACE}
  lidar: {driver: ouster, source: "sim:", beams: 32, mode: 512x10, PACE}
  radar: {driver: mmwave, source: "sim:", radar: {frame_length: 16, adc_samples: 64}, PACE}
  imu: {driver: xsens, source: "sim:", rate: 100, PACE}
storage: {min_free_gb: 0.01}
"""
PAYLOAD = {
    "camera": ["video.avi"],
    "lidar": ["rng", "rfl", "nir"],
    "lidar_imu": ["acc", "avel"],
    "radar": ["iq", "valid"],
    "imu": ["acc", "avel", "rot"],
}
RATES_HZ = {"camera": 10, "lidar": 10, "lidar_imu": 100, "radar": 20, "imu": 100}


@dataclass
class Emulated:
    """`recorder emulate`, running; once it has ended also what it said and injected."""

    config: Path
    said: str = ""
    injected: dict[str, dict[str, int]] = field(default_factory=dict)


@contextmanager
def emulated(folder: Path, config: Path, *faults: str) -> Iterator[Emulated]:
    """The devices of a config's sources; `Emulated.config` records from them."""
    command = [sys.executable, "-m", "recorder", "emulate", str(config), "--seed", "1"]
    command += ["--report", str(folder / "report.json"), "--format", "json"]
    for fault in faults:
        command += ["--fault", fault]
    process = subprocess.Popen(
        command,
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    made = Emulated(folder / "emulated.yaml")
    try:
        while "emulating" not in (line := process.stderr.readline()):
            assert line, "the emulation ended"
        made.config.write_bytes(os.read(process.stdout.fileno(), 1 << 20))  # JSON is YAML
        yield made
    finally:
        process.terminate()
        made.said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, made.said
    made.injected = json.loads((folder / "report.json").read_text())


def write_config(folder: Path, name: str, pace: str) -> Path:
    path = folder / f"{name}.yaml"
    text = CONFIG.replace("ROOT", str(folder / "sessions")).replace("NAME", name)
    path.write_text(text.replace("PACE", f"pace: {pace}"))
    return path


@dataclass
class Recorded:
    """A session of emulated devices, and what was done to them."""

    path: Path
    ran: Ran
    injected: Mapping[str, Mapping[str, int]]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return events(self.path, type=kind)

    def lost(self) -> dict[str, Counter[str]]:
        """Counted losses, by stream and cause."""
        counted: dict[str, Counter[str]] = {}
        for event in self.events("lost"):
            if event["count"] is not None:
                counted.setdefault(event["stream"], Counter())[event["cause"]] += event["count"]
        return counted

    def intervals(self, stream: str) -> list[float]:
        """Lengths of the times in which the stream's device was gone [s]."""
        return [
            event["duration_ns"] / 1e9
            for event in self.events("lost")
            if event["stream"] == stream and event["count"] is None
        ]

    def reported(self, stream: str, key: str) -> list[Any]:
        """What state records, and losses, say of something."""
        lines = (self.path / "_recorder" / "log.jsonl").read_text().splitlines()
        values = [
            e["state"] for e in map(json.loads, lines) if "state" in e and e["stream"] == stream
        ]
        values += [event for event in self.events("lost") if event["stream"] == stream]
        return [value[key] for value in values if key in value]


def record(
    folder: Path,
    faults: Callable[[float], list[str]],
    span_s: float,
    check: Callable[[Recorded], None],
    change: Callable[[dict[str, Any]], None] = lambda _: None,
) -> None:
    """Record from devices on which faults fall while the session is open, and check what came.

    Args:
        faults: given the second of the first one, after a device's first packet.
        span_s: from the first fault to the session's end.
        check: what must hold.
        change: to the config that records.

    A device's first packet comes after the recorder's start and before the session's, so that what
    begins later than the session did after the recorder is within it.  Where a busy machine takes
    longer than that, or cannot emulate in real time, what does not hold is tried again, later.
    """
    sim = write_config(folder, "sim", "realtime")
    for attempt, at_s in enumerate((6.0, 18.0, 50.0)):
        name = f"faults_{attempt}"
        with emulated(folder, sim, *faults(at_s)) as devices:
            config = yaml.safe_load(devices.config.read_text())
            change(config)
            devices.config.write_text(json.dumps(config))
            began_ns = time.time_ns()
            ran = recorder("run", devices.config, "--name", name, "--duration", at_s + span_s)
        path = folder / "sessions" / name
        with Session(path) as session:
            assert session.start_ns is not None
            in_time = session.start_ns - began_ns < at_s * 1e9 and "too slow" not in devices.said
        valid = recorder("validate", path, "--deep", "--format", "json")
        assert valid.code == 0, valid.out
        try:
            check(Recorded(path, ran, {n: Counter(k) for n, k in devices.injected.items()}))
            return
        except AssertionError:
            if in_time:
                raise
    pytest.fail("this machine is too busy: sessions began too late, or emulation was too slow")


def rows(session: Session, stream: str) -> list[bytes]:
    """A stream's samples, payload only, as bytes."""
    reader = session.stream(stream)
    return [
        b"".join(
            np.asarray(value).tobytes() for value in reader.sample(k, PAYLOAD[stream]).values()
        )
        for k in range(len(reader))
    ]


def test_what_devices_give_is_what_the_simulation_gives(tmp_path: Path) -> None:
    sim = write_config(tmp_path, "sim", "max")
    done = recorder("run", sim, "--duration", "25", "--format", "json")
    assert done.code == 0, done.err
    with emulated(tmp_path, sim) as emulation:
        done = recorder("run", emulation.config, "--name", "devices", "--duration", "5")
    assert done.code == 0, done.err
    with (
        Session(tmp_path / "sessions" / "sim") as simulated,
        Session(tmp_path / "sessions" / "devices") as devices,
    ):
        assert set(devices.streams) == set(simulated.streams) == set(PAYLOAD)
        for stream in PAYLOAD:
            given, expected = rows(devices, stream), rows(simulated, stream)
            assert len(given) > 2 * RATES_HZ[stream], stream
            # A device ran for a while before the session began: it is somewhere within.
            start = expected.index(given[0])
            assert given == expected[start : start + len(given)], stream
    recorded = Recorded(tmp_path / "sessions" / "devices", done, emulation.injected)
    assert recorded.events("lost") == recorded.events("device") == []
    assert emulation.injected == {name: {} for name in ("camera", "lidar", "radar", "imu")}


def test_what_is_injected_is_counted(tmp_path: Path) -> None:
    def faults(at: float) -> list[str]:
        return [
            *(f"camera.{f}" for f in (f"loss=3x@{at}", f"corrupt=2x@{at + 1}")),
            *(f"camera.{f}" for f in (f"duplicate=2x@{at + 2}", f"stall@{at + 4}+1")),
            *(f"imu.{f}" for f in (f"loss=5x@{at}", f"corrupt=2x@{at + 1}")),
            *(f"imu.{f}" for f in (f"duplicate=3x@{at + 2}", f"stall@{at + 4}+1")),
            *(f"radar.{f}" for f in (f"loss=7x@{at}", f"corrupt=2x@{at + 1}")),
            *(f"radar.{f}" for f in (f"duplicate=4x@{at + 2}", f"reorder=3x@{at + 3}")),
            *(f"lidar.{f}" for f in (f"loss=20x@{at}", f"duplicate=5x@{at + 2}")),
            *(f"lidar.{f}" for f in (f"reorder=4x@{at + 3}", f"stall@{at + 4}+1")),
            *(f"{name}.clock_jump=2.5@{at + 6}" for name in ("camera", "lidar", "imu")),
        ]

    record(tmp_path, faults, 9.0, check_counts)


def check_counts(recorded: Recorded) -> None:
    """What the faults of `test_what_is_injected_is_counted` must have led to."""
    assert recorded.ran.code == 3, recorded.ran.err
    injected, lost = recorded.injected, recorded.lost()
    assert set(lost) == {"camera", "imu", "lidar", "lidar_imu"}
    assert all(event["count"] is not None for event in recorded.events("lost"))
    assert recorded.events("device") == []  # none of it makes a device go

    camera = injected["camera"]
    assert (camera["loss"], camera["corrupt"], camera["duplicate"]) == (3, 2, 2)
    assert camera["stall"] > 5
    assert lost["camera"] == {"device": 3 + camera["stall"], "corrupt": 2}
    assert recorded.reported("camera", "repeated") == [1, 2]

    imu = injected["imu"]
    assert (imu["loss"], imu["corrupt"], imu["duplicate"]) == (5, 2, 3)
    assert lost["imu"] == {"device": 5 + imu["stall"], "corrupt": 2}
    assert sum(recorded.reported("imu", "messages_repeated_or_late")) == 3
    steps_ns = recorded.reported("imu", "device_clock_step_ns")
    assert len(steps_ns) == 1 and abs(steps_ns[0] - 2_500_000_000) < 20_000_000

    radar = injected["radar"]
    assert radar == {"loss": 7, "corrupt": 2, "duplicate": 4, "reorder": 3}
    assert sum(recorded.reported("radar", "packets_lost")) == 7
    assert sum(recorded.reported("radar", "packets_corrupt")) == 2
    assert sum(recorded.reported("radar", "packets_duplicate")) == 4
    assert "radar" not in lost
    with Session(recorded.path) as session:
        reader = session.stream("radar")
        valid = [int(reader.sample(k, ["valid"])["valid"]) for k in range(len(reader))]
    # Seven packets in a row lie in a frame or two, and so do two.
    assert valid.count(0) == len(recorded.reported("radar", "bytes_missing")) in (2, 3, 4)
    with Session(recorded.path) as session:
        accounts = read_accounts(session)
        judged = verdict(accounts)
    assert sum_incomplete(accounts.streams["radar"]["incomplete"]) == (valid.count(0), 7 + 2)
    assert accounts.streams["lidar"]["incomplete"].keys() == {"network"}
    assert judged.word == "FAIL" and accounts.state == "clean"

    lidar = injected["lidar"]
    assert (lidar["loss"], lidar["duplicate"], lidar["reorder"]) == (20, 5, 4)
    missing = sum(recorded.reported("lidar", "packets_missing")) + lost["lidar_imu"]["network"]
    assert missing == 20 + lidar["stall"]
    assert sum(recorded.reported("lidar", "packets_repeated")) == 5
    assert any(abs(ns - 2.5e9) < 1e9 for ns in recorded.reported("lidar", "device_clock_step_ns"))


def test_devices_that_go_come_back(tmp_path: Path) -> None:
    def faults(at: float) -> list[str]:
        return [
            f"camera.unplug@{at}+2", f"imu.unplug@{at + 1}+2", f"radar.unplug@{at + 2}+2",
            f"lidar.unplug@{at}+3", f"imu.reboot@{at + 8}+1.5", f"radar.reboot@{at + 9}+1.5",
            f"camera.reboot@{at + 8}+1.5", f"lidar.reboot@{at + 10}+2.5",
        ]  # fmt: skip

    def change(config: dict[str, Any]) -> None:
        config["sensors"]["lidar"]["timeout_s"] = 1.0

    record(tmp_path, faults, 20.0, check_absences, change)


def check_absences(recorded: Recorded) -> None:
    """Two absences of each device, and nothing else."""
    assert recorded.ran.code == 3, recorded.ran.err
    for name in ("camera", "lidar", "radar", "imu"):
        reported = [e["cause"] for e in recorded.events("device") if e["stream"] == name]
        assert reported == ["lost", "present"] * 2, name
        assert {"unplug", "reboot"} <= set(recorded.injected[name])
    for stream in PAYLOAD:
        # From the last sample to the first: longer than the device was gone.
        assert len(gone := recorded.intervals(stream)) == 2, stream
        assert min(gone) > 1.4, stream
    assert recorded.lost() == {}  # and so none of them lost anything while another was gone
    with Session(recorded.path) as session:
        for stream, rate_hz in RATES_HZ.items():
            steps = np.diff(session.stream(stream).t_ns) / 1e9
            assert len(steps) > 8 * rate_hz, stream
            assert sorted(steps)[-2] > 1.4, stream


EIGHT_CONFIG = """\
version: 1
session: {root: ROOT}
sensors:
  camera: {driver: camera, source: "sim:", width: 320, height: 240, fps: 10}
  front: {driver: camera, source: "sim:", codec: copy, width: 320, height: 240, fps: 10}
  lidar: {driver: ouster, source: "sim:", beams: 32, mode: 512x10}
  radar: {driver: mmwave, source: "sim:", radar: {frame_length: 16, adc_samples: 64}}
  imu: {driver: xsens, source: "sim:", rate: 100}
  gnss: {driver: gnss, source: "sim:", rate: 5}
  bus: {driver: can, source: "sim:"}
  packets: {driver: udp, source: "sim:", rate: 200}
storage: {min_free_gb: 0.01}
"""
EIGHT = {"camera", "front", "lidar", "lidar_imu", "radar", "imu", "gnss", "bus", "packets"}
DEVICE_PERIODS_NS = {"lidar": 100_000_000, "lidar_imu": 10_000_000, "imu": 10_000_000}


@pytest.mark.campaign(weight=60)
def test_eight_sensors_lose_nothing_and_are_packed(tmp_path: Path, campaign: Campaign) -> None:
    seconds = campaign.part_of(60)
    config = tmp_path / "rig.yaml"
    config.write_text(EIGHT_CONFIG.replace("ROOT", str(tmp_path / "sessions")))
    with emulated(tmp_path, config) as rig:
        ran = recorder("run", rig.config, "--name", "minute", "--duration", seconds)
    assert all(not faults for faults in rig.injected.values())
    path = tmp_path / "sessions/minute"
    recorded = Recorded(path, ran, rig.injected)
    # Where this machine is too slow, streams pause, and the session says when.
    assert ran.code == (3 if recorded.events("lost") else 0), ran.err
    assert recorded.lost() == {}
    assert recorded.events("device") == []
    with Session(path) as session:
        assert session.streams.keys() == EIGHT
        for name in EIGHT:
            stream = session.stream(name)
            assert stream.t_ns is not None and len(stream.t_ns) > 10, name
            if (period_ns := DEVICE_PERIODS_NS.get(name)) is not None:
                assert stream.t_dev_ns is not None
                steps = np.diff(stream.t_dev_ns)
                assert np.all(np.abs(steps - period_ns) < period_ns / 2), name
    packed = recorder("finalize", path, "--to", ",".join(available()), "--format", "json")
    assert packed.code == 0, packed.err
    made = json.loads(packed.out)["archives"]
    assert {one["archive"] for one in made} == {"ncore", "edgefirst", "l5kit", "vrs", "mcap"}
    assert recorder("validate", path, "--deep").code == 0
    checked = recorder("validate", path / "_archives")
    assert checked.code == 0, checked.out
