"""Checks of an NCore V4 sequence by our own reader and by NVIDIA's ``SequenceLoaderV4``."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from recorder.archives.ncore.format.manifest import describe_store, read_manifest, store_md5
from recorder.archives.validation import ArchiveCheck, ArchiveReport, need
from recorder.common.errors import ArchiveError, FormatError
from recorder.formats.zarr2 import open_store, read_array

_STORE = re.compile(r"(?P<name>.+)\.ncore4(-[^/]+)?\.zarr(\.itar)?")
_OFTEN = 64


class NcoreCheck(ArchiveCheck):
    """Check that reads every array of every store that the JSON file names."""

    software: ClassVar[str] = "nvidia-ncore"
    left: ClassVar[str] = "whether NVIDIA's SequenceLoaderV4 reads it"

    def find(self, path: Path) -> Path | None:
        if found := _STORE.fullmatch(path.name):
            path = path.with_name(f"{found['name']}.json")
        if path.suffix != ".json" or not path.is_file():
            return None
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return path if list(path.parent.glob(f"{path.stem}.ncore4*")) else None
        return path if isinstance(document, dict) and "component_stores" in document else None

    def read(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        manifest = read_manifest(path)
        count = 0
        for number, entry in enumerate(manifest.stores):
            place = path.with_name(entry.path)
            if not place.exists():
                raise ArchiveError(f"{place}: is missing; {path.name} names it")
            if (md5 := store_md5(place)) != entry.md5:
                raise ArchiveError(f"{place}: has MD5 {md5}, not {entry.md5} as in {path.name}")
            own, _ = describe_store(place, md5)
            if (own.sequence_id, own.interval) != (manifest.sequence_id, manifest.interval):
                raise ArchiveError(f"{place}: is of another sequence or interval")
            if own.stores[0].components != entry.components:
                raise ArchiveError(f"{place}: has other components than {path.name} says")
            store = open_store(place)
            keys = list(store)
            for done, key in enumerate(keys):
                if key.endswith("/.zarray"):
                    _read(place, store, key.removesuffix("/.zarray"))
                    count += 1
                if done % _OFTEN == 0:
                    yield (number + done / len(keys)) / len(manifest.stores)
        stores = f"{len(manifest.stores)} stores" if len(manifest.stores) > 1 else "1 store"
        report.checked.append(f"{stores}: MD5, metadata, and all {count} arrays")

    def read_with_software(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        components = need("ncore.impl.data.v4.components")
        compat = need("ncore.impl.data.v4.compat")
        loader = compat.SequenceLoaderV4(components.SequenceComponentGroupsReader([path]))
        sensors = [
            *((name, loader.get_camera_sensor(name), _camera) for name in loader.camera_ids),
            *((name, loader.get_lidar_sensor(name), _rays) for name in loader.lidar_ids),
            *((name, loader.get_radar_sensor(name), _rays) for name in loader.radar_ids),
        ]
        counts = []
        for number, (name, sensor, read_frame) in enumerate(sensors):
            ends = sensor.frames_timestamps_us[:, 1]
            loader.pose_graph.evaluate_poses(name, "world", ends)
            for index in range(sensor.frames_count):
                read_frame(sensor, index)
                yield (number + index / sensor.frames_count) / len(sensors)
            counts.append(f"{name} {sensor.frames_count}")
        for name in loader.point_clouds_ids:
            source = loader.get_point_clouds_source(name)
            for index in range(source.pcs_count):
                _ = source.get_pc(index).xyz
                yield 1.0
            counts.append(f"{name} {source.pcs_count} point clouds")
        cuboids = len(list(loader.get_cuboid_track_observations()))
        report.checked.append(
            f"nvidia-ncore: frames of {', '.join(counts) or 'no sensor'}, their poses in the "
            f"world, {cuboids} cuboids"
        )


def _read(place: Path, store: Any, array: str) -> None:
    try:
        read_array(store, array)
    except (KeyError, ValueError, RuntimeError, lzma.LZMAError) as error:
        raise FormatError(f"{place}: {array}: is damaged: {error}") from None


def _camera(sensor: Any, index: int) -> None:
    sensor.get_frame_handle(index).get_data().get_encoded_image_data()


def _rays(sensor: Any, index: int) -> None:
    for number in range(sensor.get_frame_ray_bundle_return_count(index)):
        sensor.get_frame_point_cloud(index, False, False, number)


CHECK = NcoreCheck()
