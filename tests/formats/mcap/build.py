"""MCAP files for tests."""

from __future__ import annotations

import random
from pathlib import Path

from recorder.common.files import PosixDisk
from recorder.formats.mcap.writer import McapWriter

START_NS = 1_700_000_000_000_000_000
Sent = list[tuple[str, int, int, int, bytes]]
"""Topic, sequence, log time, publish time, data."""


def write_file(
    path: Path, count: int = 300, *, chunk_bytes: int = 4096, finish: bool = True
) -> Sent:
    """A file with a compressed and an uncompressed topic; returns its messages by log time."""
    chance = random.Random(7)
    sent: Sent = []
    with McapWriter(path, PosixDisk(), profile="", library="test", chunk_bytes=chunk_bytes) as mcap:
        schema = mcap.schema("test.Text", "jsonschema", b'{"type":"object"}')
        numbers = {
            "/imu": mcap.channel("/imu", schema, "json", {"unit": "m"}),
            "/camera": mcap.channel("/camera", 0, "jpeg", compress=False),
        }
        mcap.attach("config.yaml", "application/yaml", b"version: 1\n", START_NS, 5)
        mcap.metadata("foxglove", {"deviceName": "rig-1"})
        for k in range(count):
            for topic, size in (("/imu", 40), ("/camera", chance.randrange(900))):
                log_ns = START_NS + 1000 * k + (topic == "/camera")
                parts = [b"head", chance.randbytes(size) if topic == "/camera" else b"x" * size]
                mcap.write(numbers[topic], k, log_ns, log_ns + 77, parts)
                sent.append((topic, k, log_ns, log_ns + 77, b"".join(parts)))
        if finish:
            mcap.finish()
    return sent
