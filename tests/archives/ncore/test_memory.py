"""What packing keeps in memory does not grow with the session (but for 16 bytes a frame)."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from recorder.archives.context import PackingContext
from recorder.archives.ncore.packer import PACKER
from recorder.perception.calibration import Calibration
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import lidar, still_imu
from tests.session.build import Builder, camera_spec, radar_spec

GROWTH_BYTES = 3_800_000
"""What waits for the end is in memory up to a megabyte each, before it goes into a file."""


def peak_bytes(path: Path, scale: int) -> int:
    builder = Builder(path)
    builder.add(camera_spec(), count=60 * scale)
    builder.add(radar_spec(), count=40 * scale)
    builder.add(lidar(), count=6 * scale)
    builder.add(still_imu(), count=600 * scale)
    builder.close()
    del builder
    folder = path.parent / f"{path.name}_out"
    folder.mkdir()
    with Session(path, virtual=True) as session:
        context = PackingContext(
            session, folder, PACKER.check({"poses": "identity"}), Calibration()
        )
        tracemalloc.start()
        PACKER.pack(context)
        context.close()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.campaign
def test_memory_is_bounded(tmp_path: Path) -> None:
    peak_bytes(tmp_path / "warm", 1)  # imports and caches
    # From 8 on, the samples that are remembered have all the memory that they may take.
    short, long = (peak_bytes(tmp_path / str(n), n) for n in (8, 20))
    raw = 12 * 40 * 8 * 2 * 4 * 128 * 2
    assert raw > 2 * GROWTH_BYTES  # so that keeping what is packed would show
    assert long - short < GROWTH_BYTES, (short, long)
