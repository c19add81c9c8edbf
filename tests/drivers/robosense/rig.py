"""RoboSense lidars that turn evenly, as packets, captures and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from drivers.kit.lidar.columns import Columns
from drivers.kit.lidar.decoder import Packets
from drivers.robosense.description import make_description
from drivers.robosense.models import MODELS, Model
from drivers.robosense.packets import DUAL_NAMES, RobosenseDecoder, make_packet
from recorder.formats.pcap.writer import PcapWriter
from tests.drivers.kit.lidar.packet_messages import HOST, SENSOR

START_NS = 1_700_000_000_000_000_000
MSOP, DIFOP = 6699, 7788


def make_decoder(model: Model, returns: int) -> RobosenseDecoder:
    names = ("single",) if returns == 1 else DUAL_NAMES
    return RobosenseDecoder(model, make_packet(model, returns), names, 10.0)


def turning(model: Model, returns: int, packets: int, *, first: int = 0, seed: int = 1) -> Columns:
    """Columns of so many packets of a lidar that turns with 10 Hz and measures noise."""
    decoder, dice = make_decoder(model, returns), np.random.default_rng(seed)
    per_packet = decoder.columns if model.blocks % 2 == 0 or returns == 1 else 1.5
    count = round(packets * per_packet)
    number = np.arange(count) + round(first * per_packet)
    firings = model.firings if returns == 1 else 1
    step = 360_000 * decoder.column_ns * 1e-9
    azimuth = np.floor(number // firings * firings * step).astype(np.int64) % 36_000
    bits = 16 - model.feature_bits
    shape = (returns, count, model.channels)
    features = dice.integers(0, 4, shape).astype("u1") if model.feature_bits else None
    return Columns(
        azimuth.astype("<u4"),
        START_NS + np.round(number * decoder.column_ns).astype(np.int64),
        dice.integers(0, 1 << bits, shape).astype("<u2"),
        dice.integers(0, 256, shape).astype("u1"),
        features,
    )


def make_packets(model: Model, returns: int, count: int, seed: int = 1) -> Packets:
    columns = turning(model, returns, count, seed=seed)
    return make_decoder(model, returns).encode(columns, first_number=7)


def angles(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Elevations and azimuths, deg, in the unit of the model's description."""
    elevation = np.linspace(*model.view_deg, model.channels)
    if model.angles_at[1] < 0:
        half = np.arange(1, 16, 2.0)
        return np.concatenate([-half[::-1], half[::-1]]), np.zeros(16)
    return np.round(elevation, 2), np.round(np.linspace(-5, 5, model.channels), 2)


def describe(model: Model, returns: int, rpm: int = 600) -> bytes:
    single = model.single[0][0] if model.single else 1
    return make_description(
        model, *angles(model), mode=model.dual[0] if returns == 2 else single, rpm=rpm
    )


def arrivals(packets: Packets, interval_ns: int = 600_000) -> list[tuple[int, bytes]]:
    return [(START_NS + k * interval_ns, p.tobytes()) for k, p in enumerate(packets)]


def write_device(path: Path, packets: list[tuple[int, bytes]], description: bytes | None) -> Path:
    """A capture of a device: its description comes first, and again after each 100 packets."""
    with path.open("wb") as file:
        writer = PcapWriter(file)
        for k, (t_ns, payload) in enumerate(packets):
            if description is not None and k % 100 == 0:
                writer.write(t_ns, SENSOR, DIFOP, HOST, DIFOP, description)
            writer.write(t_ns, SENSOR, MSOP, HOST, MSOP, payload)
    return path


def options_for(model: Model) -> dict[str, Any]:
    return {"model": model.name} if model.name in ("RS-16", "RS-32") else {}


CASES = [(name, returns) for name in MODELS for returns in (1, 2)]
