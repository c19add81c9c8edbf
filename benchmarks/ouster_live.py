"""Cost of receiving an Ouster's packets and assembling sweeps, and the number of lost packets.

A separate process sends the packets of simulated sweeps on loopback, each at the time at which a
sensor of that mode would.  A second process runs the driver on ``udp:`` up to the arrays of a
sweep, or up to the recorded xz frames (``encode``).  CPU is that of the receiving process.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt

from benchmarks.harness import Figure, Option, Run, find_port, spawn
from drivers.kit.driver import Sample, SensorConfig, State
from drivers.kit.encode import Encoder
from drivers.ouster.driver import OusterDriver
from drivers.ouster.model import LidarScene, default_info
from drivers.ouster.model_packets import LidarPackets
from drivers.ouster.sdk import load_sdk
from drivers.world import World
from recorder.common.errors import DeviceError
from recorder.config.options import check_options

_PROFILES: Final = ("RNG15_RFL8_NIR8", "RNG19_RFL8_SIG16_NIR16_DUAL")
OPTIONS = {
    "seconds": Option("float", 10.0, "of sending, each", minimum=1),
    "rounds": Option("int", 3, "repetitions", minimum=1),
    "modes": Option("str", "2048x10,1024x20", "modes of the sensor"),
    "profiles": Option("str", ",".join(_PROFILES), "profiles of its packets"),
    "encode": Option("bool", False, "receive as far as the recorded frames"),
}
QUICK = {"seconds": 2.0, "rounds": 1}
_DISTINCT: Final = 4  # sweeps that are looked at; they come again with other times and numbers
_LEAD_S: Final = 0.3


class _RepeatingScene(LidarScene):
    """Scene whose sweeps repeat, so that the sender can make them in advance."""

    _seen: dict[int, Mapping[str, npt.NDArray[Any]]]

    def sweep(self, index: int) -> Mapping[str, npt.NDArray[Any]]:
        self._seen = getattr(self, "_seen", {})
        which = index % _DISTINCT
        if which not in self._seen:
            self._seen[which] = super().sweep(which)
        return self._seen[which]


def make_info(core: Any, mode: str, profile: str) -> Any:
    """Make the metadata of an OS-1-128 in a mode and profile."""
    info = default_info(core, mode, 128)
    layout = info.format
    layout.udp_profile_lidar = core.UDPProfileLidar.from_string(profile)
    info.format = layout
    return info


def send(mode: str, profile: str, seconds: float, port: int, link: Connection) -> None:
    """Make the packets, then send each when it is due; runs in a separate process."""
    core = load_sdk()
    info = make_info(core, mode, profile)
    scene = _RepeatingScene(core, info, World("drive", 0))
    packets = LidarPackets(core, info, scene)
    sweeps = round(seconds * 1e9 / scene.period_ns)
    made = [packet for k in range(sweeps) for packet in packets.sweep(k)]
    link.send("ready")
    link.recv()
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.connect(("127.0.0.1", port))
    begin_s = time.monotonic() + _LEAD_S
    for packet in made:
        due_s = begin_s + (packet.t_ns - made[0].t_ns) / 1e9
        wait_s = due_s - time.monotonic()
        if wait_s > 0.0005:
            time.sleep(wait_s)
        with contextlib.suppress(ConnectionRefusedError):  # the driver opens its port again
            wire.send(packet.data)
    link.send({"sweeps": sweeps, "mb": sum(len(p.data) for p in made) / 1e6})


def receive(metadata: str, port: int, encode: bool, link: Connection) -> None:
    """Run the driver until a second without data; send the counts and the CPU time."""
    options = {"metadata": metadata, "imu_port": port, "timeout_s": 1.0}
    checked = check_options(OusterDriver.options, options)
    driver = OusterDriver(SensorConfig("lidar", "udp", f"//127.0.0.1:{port}", checked))
    link.send("ready")
    while True:
        try:
            specs = driver.open()
            break
        except DeviceError:
            continue
    encoders = {spec.name: Encoder(spec) for spec in specs}
    got = {"sweeps": 0, "packets_missing": 0}
    begin = cpu = time.process_time()
    try:
        while True:
            item = driver.read()
            if item is None:
                continue
            cpu = time.process_time()
            if isinstance(item, Sample):
                got["sweeps"] += item.count * (item.stream == "lidar")
                if encode:
                    encoders[item.stream].encode(item)
            elif isinstance(item, State):
                got["packets_missing"] += item.values.get("packets_missing", 0)
    except DeviceError:
        pass
    for encoder in encoders.values():
        encoder.close()
    driver.close()
    link.send({**got, "cpu": cpu - begin})


def measure_once(
    mode: str, profile: str, seconds: float, encode: bool, folder: Path
) -> dict[str, float]:
    """Make one measurement: CPU in seconds a second of sending."""
    port = find_port()
    path = folder / "sensor.json"
    path.write_text(make_info(load_sdk(), mode, profile).to_json_string())
    with spawn(send, mode, profile, seconds, port) as sending:
        sending.recv()
        with spawn(receive, str(path), port, encode) as receiving:
            receiving.recv()
            time.sleep(0.5)  # for ouster-sdk to load; its driver tries again until packets come
            sending.send("go")
            sent, got = sending.recv(), receiving.recv()
    missing = sent["sweeps"] - got["sweeps"] + got["packets_missing"]
    return {"mb_per_s": sent["mb"] / seconds, "cpu": got["cpu"] / seconds, "missing": missing}


def measure(run: Run) -> Iterator[Figure]:
    """Measure each mode and profile, in turns."""
    run.data["packets"] = "of simulated sweeps of an OS-1-128, on loopback"
    options = run.options
    limits = options["seconds"], options["encode"]
    cases = [(m, p) for m in options["modes"].split(",") for p in options["profiles"].split(",")]
    done = run.take_turns({case: partial(measure_once, *case, *limits) for case in cases})
    for (mode, profile), runs in done.items():
        case = f"128x{mode} {profile}"
        yield Figure(f"{case}, CPU", [r["cpu"] for r in runs], "CPU s / s")
        yield Figure(f"{case}, rate", [r["mb_per_s"] for r in runs], "MB/s")
        yield Figure(f"{case}, missing", [r["missing"] for r in runs], "sweeps and packets")
