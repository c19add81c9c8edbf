"""Sessions of lidars' packets, packed for NCore, in NVIDIA's loader.

The packets are built by the offsets of Hesai's manual, and placed by its sentences; where they are,
the packets of real lidars, whose clouds another decoder made.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial import cKDTree

from recorder.formats.pcap.writer import MAPPED, PcapWriter
from recorder.session.reader import Session
from tests.acceptance.command import recorder
from tests.conftest import SHARED_DATA
from tests.drivers.hesai.test_packets import DUAL, MANUALS, SENT_NS, build
from tests.drivers.kit.lidar.lidars import read_real

pytestmark = pytest.mark.conformance
components: Any = pytest.importorskip(
    "ncore.impl.data.v4.components", reason="needs nvidia-ncore, which is not installed"
)
compat: Any = pytest.importorskip("ncore.impl.data.v4.compat")

CHANNELS, COLUMNS, GROUPS = 32, 2000, 4  # of a packet of an XT32 with two returns
COLUMN_NS = 50_000
STEP_DEG = 0.18
PACKET_NS = GROUPS * COLUMN_NS
REAL = ["hesai_40p", "hesai_xt32", "hesai_qt64", "velodyne_vlp16"]


def write_capture(path: Path, packets: Any, times: Any) -> None:
    here, there = MAPPED + bytes([192, 168, 1, 100]), MAPPED + bytes([192, 168, 1, 201])
    with path.open("wb") as file:
        writer = PcapWriter(file)
        for t_ns, packet in zip(times, packets, strict=True):
            writer.write(int(t_ns), there, 10000, here, 2368, bytes(packet))


def pack(folder: Path, driver: str, *lines: str) -> tuple[Any, Path]:
    """Record a capture, pack it, and open what came out with NVIDIA's loader."""
    text = "\n".join(("version: 1", "sensors:", "  lidar:", f"    driver: {driver}", *lines))
    (folder / "config.yaml").write_text(text + "\n")
    ran = recorder("run", folder / "config.yaml", "--root", folder, "--name", "s")
    assert ran.code == 0, ran.err
    ran = recorder("finalize", folder / "s", "--to", "ncore", "--format", "json")
    assert ran.code == 0, ran.err
    (archive,) = ran.result["archives"]
    reader = components.SequenceComponentGroupsReader([Path(archive["files"][-1])])
    return compat.SequenceLoaderV4(reader).get_lidar_sensor("lidar"), folder / "s"


def model_rays(sensor: Any, index: int) -> npt.NDArray[np.float64]:
    """The directions of the elements of a frame's rays, by the model's parameters."""
    model = sensor.model_parameters
    elements = sensor.get_frame_ray_bundle_model_element(index).astype(int)
    elevation = model.row_elevations_rad[elements[:, 0]].astype(np.float64)
    azimuth = model.column_azimuths_rad[elements[:, 1]].astype(np.float64)
    azimuth += model.row_azimuth_offsets_rad[elements[:, 0]]
    level = np.cos(elevation)
    return np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], axis=1)


def off_deg(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.asarray(np.degrees(2 * np.arcsin(np.linalg.norm(one - other, axis=1) / 2)))


def test_rays_of_built_packets_are_right_in_place_and_time(tmp_path: Path) -> None:
    manual, dice = MANUALS["PandarXT32"], np.random.default_rng(1)
    elevations = [15.0 - k for k in range(CHANNELS)]
    angles = "Laser id,Elevation,Azimuth\n"
    angles += "".join(f"{k + 1},{e},{0.3 * (k % 4)}\n" for k, e in enumerate(elevations))
    (tmp_path / "angles.csv").write_text(angles)
    packets, times, expected = [], [], []
    for number in range(2 * COLUMNS // GROUPS):
        ranges = dice.integers(250, 20_000, (2 * GROUPS, CHANNELS))
        ranges[1::2][:, ::2] = ranges[::2][:, ::2]  # the second return repeats the first
        ranges[1::2][:, 1::2] = ranges[::2][:, 1::2] + 300
        first = number * GROUPS
        azimuths = [round(100 * STEP_DEG * (first + k // 2)) % 36_000 for k in range(2 * GROUPS)]
        packet = bytearray(build(manual, ranges, azimuths, mode=DUAL, number=number))
        micros = 123_456 + number * PACKET_NS // 1000
        at = manual.tail + manual.micros
        packet[at : at + 4] = micros.to_bytes(4, "little")
        packets.append(bytes(packet))
        times.append(SENT_NS + number * PACKET_NS)
        for block in range(2 * GROUPS):
            for channel in range(CHANNELS):
                if block % 2 and not channel % 2:
                    continue
                azimuth = math.radians(azimuths[block] / 100 + 0.3 * (channel % 4))
                level = math.cos(math.radians(elevations[channel]))
                distance = int(ranges[block, channel]) * 0.004
                # The manual: 5.632 - 50 us for each firing after it, 0.368 + 1.512 us a channel.
                after_ns = 5632 - 50_000 * (GROUPS - 1 - block // 2) + 368 + 1512 * channel
                expected.append(
                    (
                        (first + block // 2) // COLUMNS,
                        micros * 1000 + after_ns,
                        distance * level * math.sin(azimuth),
                        distance * level * math.cos(azimuth),
                        distance * math.sin(math.radians(elevations[channel])),
                    )
                )
    write_capture(tmp_path / "a.pcap", packets, times)
    sensor, _ = pack(
        *(tmp_path, "hesai", f"    source: pcap:{tmp_path / 'a.pcap'}"),
        *("    pace: max", f"    calibration: {tmp_path / 'angles.csv'}"),
    )
    assert sensor.frames_count == 2
    truth = np.array(expected)
    for index in range(2):
        mine = truth[truth[:, 0] == index]
        points = sensor.get_frame_point_cloud(index, False, False, 0).xyz_m_end
        assert len(points) == len(mine)
        distance, nearest = cKDTree(mine[:, 2:]).query(points)
        assert distance.max() < 1e-4 and len(set(nearest.tolist())) == len(mine)
        stamps_us = sensor.get_frame_ray_bundle_timestamp_us(index).astype(np.int64)
        since_us = stamps_us - int(sensor.frames_timestamps_us[index, 0])
        wanted_us = (mine[nearest, 1] - mine[:, 1].min()) / 1000
        assert np.abs(since_us - wanted_us).max() <= 1.001
        direction = sensor.get_frame_ray_bundle_direction(index)
        assert off_deg(direction, model_rays(sensor, index)).max() < 0.03


@pytest.mark.parametrize("folder", REAL)
def test_rays_of_real_packets_hit_the_cloud(folder: str, tmp_path: Path) -> None:
    if not (SHARED_DATA / "lidar" / folder).is_dir():
        pytest.skip(f"needs the recording {folder}")
    packets, times = read_real(SHARED_DATA, folder)
    write_capture(tmp_path / "a.pcap", packets, times)
    driver = folder.partition("_")[0]
    model = ["    model: Pandar40P"] if folder == "hesai_40p" else []
    sensor, session = pack(
        tmp_path, driver, f"    source: pcap:{tmp_path / 'a.pcap'}", "    pace: max", *model
    )
    with Session(session) as opened:
        lidar = opened.streams["lidar"]
        # Of the last two sweeps, both may end with the last packet: a frame is of one stamp.
        assert len(lidar) - 1 <= sensor.frames_count <= len(lidar)
        rows = [lidar.sample(index, ["rng", "t_col"]) for index in range(len(lidar))]
    for index, sample in enumerate(rows[: sensor.frames_count]):
        points = sensor.get_frame_point_cloud(index, False, False, 0).xyz_m_end
        assert len(points) >= np.count_nonzero(sample["rng"])
        far = np.linalg.norm(points, axis=1) > (5.0 if driver == "hesai" else 20.0)
        direction = sensor.get_frame_ray_bundle_direction(index)
        # Of a VLP-16, beams begin up to 11 mm above or below the origin.
        most = 0.03 if driver == "hesai" else 0.06
        assert off_deg(direction[far], model_rays(sensor, index)[far]).max(initial=0) < most
        stamps_us = sensor.get_frame_ray_bundle_timestamp_us(index).astype(np.int64)
        t_col = sample["t_col"][sample["t_col"] > 0].astype(np.int64)
        assert abs(np.ptp(stamps_us) * 1000 - np.ptp(t_col)) < 1_000_000
