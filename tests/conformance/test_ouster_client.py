"""Ouster's own client on the emulated sensor: over HTTP, and with its packets."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.drivers.ouster.ouster_device import emulator_for, running

# In a process of its own: its requests hold Python's lock, the emulated sensor needs it to answer.
CLIENT = """
import socket, sys
from ouster.sdk import core, sensor
host, port = sys.argv[1], int(sys.argv[2])
core.init_logger("off")
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
receiver.bind(("127.0.0.1", port))
config = sensor.get_config(host)
config.udp_dest = None if AUTO else "127.0.0.1"
config.udp_port_lidar = port
config.timestamp_mode = core.TimestampMode.TIME_FROM_PTP_1588
sensor.set_config(host, config, udp_dest_auto=AUTO)
info = None
while info is None or info.config.udp_port_lidar != port:  # the old ones until it reinitializes
    try:
        info = sensor._Sensor(host, config).fetch_metadata(timeout=60)
    except RuntimeError:
        pass
print("set", info.config.udp_port_lidar == port, info.config.timestamp_mode)
layout, batcher = core.PacketFormat(info), core.FrameBatcher(info)
frame, whole = core.LidarFrame(info), 0
while whole < 3:
    data = receiver.recv(65536)
    packet = core.LidarPacket(layout)
    packet.buf[:] = list(data)
    packet.host_timestamp = 1
    assert packet.validate(info) == core.PacketValidationFailure.NONE
    assert packet.crc() == packet.calculate_crc()
    if batcher.batch(packet, frame):
        whole += frame.complete()
        frame = core.LidarFrame(info)
print("sweeps", whole)
"""


@pytest.mark.conformance
@pytest.mark.parametrize("auto", [True, False])
def test_ouster_sdk_sets_up_and_hears_the_emulated_sensor(auto: bool) -> None:
    emulator = emulator_for("sim", "", beams=32, mode="512x10")
    script = CLIENT.replace("AUTO", str(auto))
    with running(emulator) as address:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-c", script, address.removeprefix("//"), str(port)],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert "set True TIME_FROM_PTP_1588" in done.stdout
    assert "sweeps 3" in done.stdout
