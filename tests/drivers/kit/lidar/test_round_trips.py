"""Columns that are encoded to packets and decoded again, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.drivers.kit.lidar.lidars import (
    NUMBERED,
    NUMBERLESS,
    REAL,
    START_NS,
    Lidar,
    make_family,
    read_real,
)

SINGLE, DUAL, THREE = 0x37, 0x39, 0x3D
MODES = [
    *((model, SINGLE) for model in [*NUMBERED, *NUMBERLESS, "Pandar40P", "AT128"]),
    *((model, DUAL) for model in [*NUMBERED, *NUMBERLESS, "Pandar40P", "AT128"]),
    ("PandarXT32M", THREE),
]


@pytest.mark.parametrize(("model", "mode"), MODES)
def test_columns_are_the_same_after_packets(model: str, mode: int) -> None:
    lidar = Lidar(model, mode)
    columns = lidar.turn(40)
    packets, t_ns = lidar.send(columns, 7)
    decoder = lidar.family.make_decoder(packets[0].tobytes())
    assert decoder.find_sound(packets).all() and decoder.returns == lidar.decoder.returns
    found = decoder.decode(packets, t_ns)
    assert np.array_equal(found.ranges, columns.ranges)
    assert np.array_equal(found.reflectivity, columns.reflectivity)
    if columns.confidence is not None:
        assert found.confidence is not None
        assert np.array_equal(found.confidence, columns.confidence)
    if columns.state is not None and model != "QT128":
        assert found.state is not None
        assert np.array_equal(found.state, columns.state)
    assert np.abs(found.t_ns - columns.t_ns).max() <= 1000  # packets have microseconds
    turned = np.abs(found.azimuth.astype(int) - columns.azimuth.astype(int))
    assert turned.max() <= 1  # half of a VLP-16's columns have no azimuth of their own
    if decoder.number_bits:
        assert decoder.read_numbers(packets).tolist() == list(range(7, 47))
    assert START_NS - 1_000_000 < found.t_ns[0] < START_NS + 1_000_000


@pytest.mark.parametrize("folder", REAL)
def test_a_real_sensors_packets_are_encoded_byte_for_byte(shared_data: Path, folder: str) -> None:
    """The reserved fields, the motor's measured speed and other returns' marks are not recorded."""
    packets, t_ns = read_real(shared_data, folder)
    family = make_family(REAL[folder])
    decoder: Any = family.make_decoder(packets[0].tobytes())
    columns = decoder.decode(packets, t_ns)
    number = int(decoder.read_numbers(packets)[0]) if decoder.number_bits else 0
    encoded = decoder.encode(columns, number)
    different = np.flatnonzero((encoded != packets).any(axis=0))
    not_recorded: set[int] = set()
    if folder.startswith("hesai"):
        tail = decoder._model.tail
        begin = tail.speed - {"hesai_40p": 8, "hesai_qt64": 10, "hesai_xt32": 11}[folder]
        not_recorded = {tail.speed, tail.speed + 1, *range(begin, begin + 10)}
    assert set(different.tolist()) <= not_recorded
