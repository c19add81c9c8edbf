"""Clouds of five drivers in bags that rosbags writes: rosbags and mcap-ros2-support read the same.

Positions agree within 1e-6 m, and the points' times within 1 us.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mcap.reader import make_reader

from drivers.kit.driver import Sample
from drivers.kit.runner import make_driver
from drivers.lidar.driver import LidarDriver
from recorder.codecs.points import points_dtype, unpack_points
from tests.conformance.cloud_bags import LIVOX, describe
from tests.formats.ros2.cloud_kit import DRIVERS, STAMP_NS, Sent, fields_of
from tests.session.clouds import begin_ns
from tests.support.devices import play

pytestmark = pytest.mark.conformance
decoder = pytest.importorskip("mcap_ros2.decoder", reason="mcap-ros2-support is not installed")

ROOT = Path(__file__).parents[2]
ROSBAGS = ROOT / ".venv-rosbags/bin/python"
PROGRAM = ROOT / "tests/conformance/cloud_bags.py"
PERIOD_NS = 100_000_000
COUNT = 3

Times = Callable[[Mapping[str, npt.NDArray[np.float64]], Mapping[str, Any]], npt.NDArray[Any]]
TIMES: Mapping[str, Times] = {
    # What each maker's driver documents, in ns after the stamp.
    "ouster": lambda points, _: points["t"],
    "velodyne": lambda points, _: points["time"] * 1e9,
    "hesai": lambda points, told: (
        (points["timestamp"] - told["stamp_ns"] // 10**9) * 1e9 - told["stamp_ns"] % 10**9
    ),
    "robosense": lambda points, told: (
        (points["timestamp"] - told["stamp_ns"] // 10**9) * 1e9 - told["stamp_ns"] % 10**9
    ),
    "livox_cloud": lambda points, told: (
        points["timestamp"] - told["stamp_ns"] // 10**9 * 1e9 - told["stamp_ns"] % 10**9
    ),
    "livox": lambda points, told: points["offset_time"] + (told["timebase"] - told["stamp_ns"]),
}


def run(*arguments: str | Path) -> str:
    if not ROSBAGS.is_file():
        pytest.skip(f"needs rosbags in {ROSBAGS.parent.parent.name}: make conformance")
    ran = subprocess.run(
        [ROSBAGS, PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def plain(sent: Sent, stamp_ns: int) -> dict[str, Any]:
    """A cloud for rosbags to write."""
    told: dict[str, Any] = {"type": sent.type_name, "stamp_ns": stamp_ns}
    told["log_ns"] = stamp_ns + 5_000_000
    if sent.type_name == LIVOX:
        return told | {"timebase": stamp_ns + 700, "points": sent.points.tolist()}
    rows, step = sent.height, sent.points.dtype.itemsize
    fields = [[f.name, f.offset, f.datatype, f.count] for f in fields_of(sent.points)]
    data = base64.b64encode(sent.points.tobytes()).decode()
    size = {"height": rows, "width": len(sent.points) // rows, "step": step}
    return told | size | {"fields": fields, "data": data}


def by_mcap(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("*.mcap")
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[decoder.DecoderFactory()])
        return [describe(message) for _, _, _, message in reader.iter_decoded_messages()]


@pytest.mark.parametrize("storage", ["sqlite", "mcap"])
@pytest.mark.parametrize("name", DRIVERS)
def test_points_and_times_are_those_of_other_readers(
    name: str, storage: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    stamps = [STAMP_NS + k * PERIOD_NS for k in range(COUNT)]
    clouds = [plain(DRIVERS[name](rng, stamp_ns=stamp_ns), stamp_ns) for stamp_ns in stamps]
    (tmp_path / "clouds.json").write_text(json.dumps(clouds))
    bag = tmp_path / "bag"
    run("write", tmp_path / "clouds.json", bag, storage)
    readers = {"rosbags": [json.loads(line) for line in run("read", bag).splitlines()]}
    if storage == "mcap":
        readers["mcap-ros2-support"] = by_mcap(bag)
    entry = {"name": "lidar", "scheme": "bag", "address": str(bag), "options": {}, "pace": "max"}
    spec, items = play(make_driver(LidarDriver, entry))
    dtype = points_dtype(spec.channel("points.bin").columns)
    assert len(items) == COUNT
    for reader, found in readers.items():
        assert len(found) == COUNT, reader
        for item, told in zip(items, found, strict=True):
            assert isinstance(item, Sample)
            points = unpack_points(item.data["points.bin"][0], dtype, "here")
            theirs = {key: np.array(values) for key, values in told["points"].items()}
            xyz = np.stack([theirs[axis] for axis in ("x", "y", "z")], axis=1)
            np.testing.assert_allclose(points["xyz"], xyz, rtol=0, atol=1e-6, equal_nan=True)
            times = TIMES[name](theirs, told)
            begin = begin_ns(item.t_ns[0], points)
            mine = points["t_offset"] + float(begin - told["stamp_ns"])
            assert np.abs(mine - times).max() <= 1000, reader
            rings = theirs["line"] if "line" in theirs else theirs["ring"]
            np.testing.assert_array_equal(points["ring"], rings)
            bright = theirs["intensity" if "intensity" in theirs else "reflectivity"]
            np.testing.assert_array_equal(points["intensity"], bright)
