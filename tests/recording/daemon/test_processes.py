"""The daemon whole: its real processes, killed and ended."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.recording.clip.writing import write_clip
from recorder.session.layout import read_session_json
from recorder.session.part import WHOLE
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.recording.daemon.served import Served
from tests.support.waiting import wait_until

CONFIG = """
version: 1
session: {root: sessions, name: drive, split: {minutes: SPLIT}}
storage: {min_free_gb: 0}
sensors:
  imu: {driver: xsens, source: "sim:", rate: 100, min_rate: 50, process: {nice: 1}}
"""


def imu(served: Served) -> Mapping[str, Any]:
    status: Mapping[str, Any] = served.status()["sensors"]["imu"]["streams"]["imu"]
    return status


def info(path: Path) -> tuple[str, int]:
    with Session(path) as session:
        return session.state, len(session.streams["imu"])


def assert_seamless(parts: list[Path]) -> None:
    """Every sample of the IMU is there once, from the first part's to the last one's end."""
    times, device = [], []
    for part in parts:
        checked = validate(part)
        assert checked.sound, (part, checked.problems)
        with Session(part) as session:
            assert session.state == "clean"
            imu = session.streams["imu"]
            rows = imu.read(0, len(imu), channels=["t_mono", "t_dev", "seq"])
            np.testing.assert_array_equal(rows["seq"], np.arange(len(imu)))
            times.append(rows["t_mono"])
            device.append(rows["t_dev"])
            assert not [event for event in session.events() if event["type"] == "lost"]
    steps = np.diff(np.concatenate(device).astype(np.int64))
    assert steps.min() == steps.max() == 10_000_000  # 100 Hz, across the seams too
    assert np.diff(np.concatenate(times).astype(np.int64)).min() > 0


@pytest.mark.campaign(weight=12)
@pytest.mark.parametrize("served", [CONFIG.replace("SPLIT", "0.1")], indirect=True)
def test_a_split_loses_and_doubles_nothing_and_the_end_is_clean(served: Served) -> None:
    served.start()
    reply = served.request("start", meta={"driver": "ada"})
    assert (reply["ok"], reply["state"]) == (True, "recording")
    header = read_session_json(Path(reply["session"]))
    session = reply["status"]["session"]
    assert session["start_ns"] == header["start_ns"]
    assert session["offset_ns"] == header["start_ns"] - header["start_mono_ns"]
    wait_until("a second part", lambda: served.status()["session"]["part"] == 2)
    wait_until("samples in it", lambda: served.samples("imu") > 50)
    wait_until("the age of the newest", lambda: imu(served)["age_s"] is not None)
    assert imu(served)["age_s"] < 30 and imu(served)["bytes_per_s"] > 0
    assert served.status()["healthy"], served.status()["faults"]
    assert served.request("mark", text="pothole")["ok"]
    assert served.terminate() == 0, served.log
    assert not served.socket.exists()
    parts = [served.root / "drive_p001", served.root / "drive_p002"]
    assert_seamless(parts)
    headers = [read_session_json(part) for part in parts]
    assert len({header["start_ns"] - header["start_mono_ns"] for header in headers}) == 1
    merged = write_clip(parts, WHOLE, served.root / "merged")
    assert validate(merged.session, deep=True).problems == []
    assert merged.samples["imu"] == sum(info(part)[1] for part in parts)
    for part in parts:
        assert read_session_json(part)["metadata"]["driver"] == "ada"
    with Session(parts[1]) as session:
        assert [event["text"] for event in session.events() if event["type"] == "mark"]


@pytest.mark.campaign(weight=12)
@pytest.mark.parametrize("served", [CONFIG.replace("SPLIT", "60")], indirect=True)
def test_whatever_is_killed_the_recording_goes_on(served: Served) -> None:
    served.start()
    served.request("start", name="tour")
    wait_until("samples", lambda: served.samples("imu") > 50)
    before = served.status()
    os.kill(before["writer"]["pid"], signal.SIGKILL)
    wait_until("another writer", lambda: served.status()["writer"]["restarts"] == 1)
    os.kill(before["sensors"]["imu"]["pid"], signal.SIGKILL)
    wait_until("another driver", lambda: served.status()["sensors"]["imu"]["starts"] == 2)
    wait_until("it is armed", lambda: served.status()["sensors"]["imu"]["state"] == "armed")
    more = served.samples("imu") + 50
    wait_until("more samples", lambda: served.samples("imu") > more)
    assert served.status()["session"]["name"] == "tour_p001"
    served.kill()
    assert read_session_json(served.root / "tour_p001")["state"] == "recording"
    served.start()
    wait_until("the next part", lambda: served.samples("imu") > 50)
    assert served.status()["session"]["name"] == "tour_p002"
    tour = served.root / "tour_p001"
    wait_until("recovery", lambda: read_session_json(tour)["state"] == "recovered")
    wait_until("checksums", (tour / "_recorder/checksums.csv").exists)
    assert info(tour)[1] > more - 50
    reply = served.request("stop")
    assert (reply["ok"], reply["state"]) == (True, "idle")
    assert reply["closed"]["session"] == str(served.root / "tour_p002")
    served.kill()
    served.start()  # a user has stopped it: it stays so
    assert served.status()["state"] == "idle"
    assert info(served.root / "tour_p002")[0] == "clean"
    assert sorted(p.name for p in served.root.iterdir() if p.name[0] != ".") == [
        "tour_p001",
        "tour_p002",
    ]
    assert served.terminate() == 0


def restarts(served: Served, count: int) -> bool:
    return bool(served.status()["writer"]["restarts"] == count)


def at_part(served: Served, part: int) -> bool:
    return bool(served.status()["session"]["part"] == part)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("served", [CONFIG.replace("SPLIT", "0.1")], indirect=True)
def test_a_writer_killed_in_mid_split_loses_and_doubles_nothing(served: Served, seed: int) -> None:
    served.start()
    served.request("start")
    rng = random.Random(seed)
    wait_until("samples", lambda: served.samples("imu") > 10)
    for part in (2, 3):
        wait_until("the seam", lambda: served.status()["session"]["elapsed_s"] > 5.9)
        before = served.status()["writer"]
        time.sleep(rng.uniform(0.0, 0.4))
        os.kill(before["pid"], signal.SIGKILL)
        wait_until("a writer", partial(restarts, served, part - 1))
        wait_until("the next part", partial(at_part, served, part))
        wait_until("samples in it", lambda: served.samples("imu") > 50)
    assert served.terminate() == 0, served.log
    parts = sorted(path for path in served.root.iterdir() if path.name[0] != ".")
    assert [path.name for path in parts] == ["drive_p001", "drive_p002", "drive_p003"], served.log
    assert_seamless(parts)
