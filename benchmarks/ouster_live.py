"""Cost of receiving an Ouster's packets and assembling sweeps, and the number of lost packets.

A separate process sends the packets of simulated sweeps on loopback, each at the time at which a
sensor of that mode would.  A second process runs the driver on ``udp:`` up to the arrays of a
sweep, or up to the recorded xz frames (``encode``).  CPU is that of the receiving process.
"""

from __future__ import annotations

import multiprocessing
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt

from benchmarks.harness import Figure, Option, Run
from drivers.kit.driver import Lost, Sample, SensorConfig, State
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
    link.send(len(made[-1].data))
    link.recv()
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.connect(("127.0.0.1", port))
    begin_s = time.monotonic() + _LEAD_S
    late_s = 0.0
    for packet in made:
        due_s = begin_s + (packet.t_ns - made[0].t_ns) / 1e9
        wait_s = due_s - time.monotonic()
        if wait_s > 0.0005:
            time.sleep(wait_s)
        late_s = max(late_s, -wait_s)
        wire.send(packet.data)
    lidar = sum(not packet.imu for packet in made)
    link.send({"sweeps": sweeps, "packets": lidar, "late_ms": late_s * 1e3,
               "mb": sum(len(p.data) for p in made) / 1e6, "cpu": time.process_time()})  # fmt: skip


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
    got = {"sweeps": 0, "imu": 0, "packets_missing": 0, "sweeps_lost": 0, "dropped": 0}
    begin = cpu = time.process_time()
    try:
        while True:
            item = driver.read()
            if item is None:
                continue
            cpu = time.process_time()
            if isinstance(item, Sample):
                got["sweeps" if item.stream == "lidar" else "imu"] += item.count
                if encode:
                    encoders[item.stream].encode(item)
            elif isinstance(item, State):
                got["packets_missing"] += item.values.get("packets_missing", 0)
                got["dropped"] += item.values.get("packets_dropped_by_kernel", 0)
            elif isinstance(item, Lost) and item.stream == "lidar":
                got["sweeps_lost"] += item.count or 0
    except DeviceError:
        pass
    for encoder in encoders.values():
        encoder.close()
    driver.close()
    link.send({**got, "cpu": cpu - begin})


def measure_once(mode: str, profile: str, seconds: float, encode: bool) -> dict[str, Any]:
    """Make one measurement: CPU in seconds a second of sending."""
    context = multiprocessing.get_context("spawn")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sensor.json"
        path.write_text(make_info(load_sdk(), mode, profile).to_json_string())
        here, there = context.Pipe()
        sending = context.Process(target=send, args=(mode, profile, seconds, port, there))
        sending.start()
        packet_bytes = here.recv()
        receiver_here, receiver_there = context.Pipe()
        arguments = (str(path), port, encode, receiver_there)
        receiving = context.Process(target=receive, args=arguments)
        receiving.start()
        receiver_here.recv()
        time.sleep(0.5)  # for ouster-sdk to load; its driver tries again until packets come
        here.send("go")
        sent, got = here.recv(), receiver_here.recv()
        sending.join()
        receiving.join()
    return {
        "mode": mode,
        "profile": profile,
        "encode": encode,
        "packet_bytes": packet_bytes,
        "packets_per_s": sent["packets"] / seconds,
        "mb_per_s": sent["mb"] / seconds,
        "packets_sent": sent["packets"],
        "sweeps_sent": sent["sweeps"],
        "sender_late_ms": sent["late_ms"],
        "cpu": got.pop("cpu") / seconds,
        **got,
    }


def measure(run: Run) -> Iterator[Figure]:
    """Measure each mode and profile, in turns."""
    run.data["packets"] = "of simulated sweeps of an OS-1-128, on loopback"
    options = run.options
    limits = options["seconds"], options["encode"]
    cases = [(m, p) for m in options["modes"].split(",") for p in options["profiles"].split(",")]
    done: dict[tuple[str, str], list[dict[str, Any]]] = {case: [] for case in cases}
    for _ in run.rounds():
        for mode, profile in cases:
            done[mode, profile].append(measure_once(mode, profile, *limits))
    for (mode, profile), runs in done.items():
        case = f"128x{mode} {profile}"
        yield Figure(f"{case}, CPU", [r["cpu"] for r in runs], "CPU s / s")
        yield Figure(f"{case}, rate", [r["mb_per_s"] for r in runs], "MB/s")
        missing = [r["sweeps_sent"] - r["sweeps"] + r["packets_missing"] for r in runs]
        yield Figure(f"{case}, missing", missing, "sweeps and packets")
