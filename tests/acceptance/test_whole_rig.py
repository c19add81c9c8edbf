"""Eight emulated sensors for a minute: nothing is lost, and every archive is packed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recorder.archives.base import available
from recorder.session.reader import Session
from tests.acceptance.command import recorder
from tests.acceptance.test_emulated_rig import Recorded, emulated

pytestmark = pytest.mark.campaign(weight=120)

SECONDS = 60
CONFIG = """\
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
RATES_HZ = {
    "camera": 10, "front": 10, "lidar": 10, "lidar_imu": 100, "radar": 20, "imu": 100, "gnss": 5,
    "bus": 310, "packets": 200,
}  # fmt: skip


def test_eight_sensors_for_a_minute(tmp_path: Path) -> None:
    config = tmp_path / "rig.yaml"
    config.write_text(CONFIG.replace("ROOT", str(tmp_path / "sessions")))
    with emulated(tmp_path, config) as rig:
        ran = recorder("run", rig.config, "--name", "minute", "--duration", SECONDS)
    assert all(not faults for faults in rig.injected.values())
    slow = "too slow" in rig.said  # then a stream is below its rate, and an interval says so
    assert ran.code == 0 or (slow and ran.code == 3), ran.err
    path = tmp_path / "sessions/minute"
    recorded = Recorded(path, ran, rig.injected)
    assert recorded.lost() == {}
    assert recorded.events("device") == []
    with Session(path) as session:
        assert session.streams.keys() == RATES_HZ.keys()
        for name, rate_hz in RATES_HZ.items():
            t_ns = session.stream(name).t_ns
            assert t_ns is not None
            # A busy machine opens a device late; from then on it has its rate until the end.
            lasted_s = int(t_ns[-1] - t_ns[0]) / 1e9
            assert slow or len(t_ns) > 0.98 * rate_hz * lasted_s, name
            assert lasted_s > SECONDS / 2, name
    packed = recorder("finalize", path, "--to", ",".join(available()), "--format", "json")
    assert packed.code == 0, packed.err
    made = json.loads(packed.out)["archives"]
    assert {one["archive"] for one in made} == {"ncore", "edgefirst", "l5kit", "vrs", "mcap"}
    assert recorder("validate", path, "--deep").code == 0
    checked = recorder("validate", path / "_archives")
    assert checked.code == 0, checked.out
