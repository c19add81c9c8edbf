"""Streams of points in a session: what `validate` says of a damaged one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from recorder.codecs.storage.points import PointsReader
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.session.build import POINT, Builder, sweeps, sweeps_spec


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    builder = Builder(tmp_path / "drive")
    builder.add(sweeps_spec(), count=9)
    return builder.close()


def texts(path: Path) -> list[str]:
    return [problem.message for problem in validate(path, deep=True).problems]


def test_a_session_is_sound_and_its_sweeps_are_read(drive: Path) -> None:
    assert texts(drive) == []
    with Session(drive) as session:
        reader = session.streams["lidar"].channels["points.bin"]
        assert isinstance(reader, PointsReader) and reader.point_dtype == POINT
        for number, points in enumerate(sweeps(9)):
            assert reader.sweep(number).tobytes() == points.tobytes()


def test_other_columns_than_declared_are_named(drive: Path) -> None:
    path = drive / "lidar/points.bin.json"
    entry = json.loads(path.read_text())
    entry["columns"][1]["name"] = "brightness"
    path.write_text(json.dumps(entry))
    assert any("points.bin: is not as its driver declared" in text for text in texts(drive))


@pytest.mark.parametrize("name", ["points.bin", "points_i"])
def test_a_cut_file_is_named(drive: Path, name: str) -> None:
    path = drive / "lidar" / name
    os.truncate(path, path.stat().st_size - 3)
    assert any(name in text for text in texts(drive))


def test_a_damaged_sweep_is_named(drive: Path) -> None:
    path = drive / "lidar/points.bin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = texts(drive)
    assert len(found) == 1 and "points.bin: sample" in found[0]
