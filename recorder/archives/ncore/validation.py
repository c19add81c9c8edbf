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
_DEFAULT = "default"


class NcoreCheck(ArchiveCheck):
    """Check that reads every array of every store that the JSON file names."""

    software: ClassVar[str] = "nvidia-ncore"
    left: ClassVar[str] = "whether NVIDIA's SequenceLoaderV4 reads it"

    def find(self, path: Path) -> Path | None:
        if found := _STORE.fullmatch(path.name):
            return self._find_sequence(path, found["name"])
        if path.suffix != ".json" or not path.is_file():
            return None
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return path if list(path.parent.glob(f"{path.stem}.ncore4*")) else None
        return path if isinstance(document, dict) and "component_stores" in document else None

    def _find_sequence(self, path: Path, name: str) -> Path | None:
        """Return the sequence of a store: its JSON file, or else the first of its stores."""
        if (described := self.find(path.with_name(f"{name}.json"))) is not None:
            return described
        return next(iter(_find_stores(path)), None)

    def read(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        manifest = read_manifest(path) if path.suffix == ".json" else describe_store(path, "")[0]
        entries = {path.with_name(entry.path): entry for entry in manifest.stores}
        if path.suffix != ".json":
            entries = {
                store: describe_store(store, "")[0].stores[0] for store in _find_stores(path)
            }
            report.remarks.append(f"{path}: no JSON file names it and its MD5")
        count = 0
        first: dict[tuple[str, str], Path] = {}
        for number, (place, entry) in enumerate(entries.items()):
            if not place.exists():
                raise ArchiveError(f"{place}: is missing; {path.name} names it")
            if entry.md5 and (md5 := store_md5(place)) != entry.md5:
                raise ArchiveError(f"{place}: has MD5 {md5}, not {entry.md5} as in {path.name}")
            own, _ = describe_store(place, entry.md5)
            if (own.sequence_id, own.interval) != (manifest.sequence_id, manifest.interval):
                raise ArchiveError(f"{place}: is of another sequence or interval")
            if own.stores[0].components != entry.components:
                raise ArchiveError(f"{place}: has other components than {path.name} says")
            for component, instances in entry.components.items():
                for instance in instances:
                    if (other := first.setdefault((component, instance), place)) != place:
                        raise ArchiveError(f"{place}: has {component}/{instance}, as {other} has")
            store = open_store(place)
            keys = list(store)
            for done, key in enumerate(keys):
                if key.endswith("/.zarray"):
                    _read(place, store, key.removesuffix("/.zarray"))
                    count += 1
                if done % _OFTEN == 0:
                    yield (number + done / len(keys)) / len(entries)
        stores = f"{len(entries)} stores" if len(entries) > 1 else "1 store"
        checks = "MD5, metadata," if path.suffix == ".json" else "metadata"
        report.checked.append(f"{stores}: {checks} and all {count} arrays")

    def read_with_software(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        components = need("ncore.impl.data.v4.components")
        compat = need("ncore.impl.data.v4.compat")
        paths = [path] if path.suffix == ".json" else _find_stores(path)
        reader = components.SequenceComponentGroupsReader(paths)
        for component in (components.PosesComponent, components.IntrinsicsComponent):
            if _DEFAULT not in reader.open_component_readers(component.Reader):
                name = component.COMPONENT_NAME
                report.unchecked.append(f"{self.left}: it has no instance {_DEFAULT} of {name}")
                return
        loader = compat.SequenceLoaderV4(reader)
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
        for name in loader.camera_labels_ids:
            labels = loader.get_camera_labels(name)
            for t_us in labels.label_timestamps_us:
                _check_label(name, labels, int(t_us))
                yield 1.0
            counts.append(f"{name} {labels.labels_count} labels")
        _check_calibrations(reader, components, compat, report)
        names = reader.open_component_readers(components.CuboidsComponent.Reader)
        sets = [
            compat.SequenceLoaderV4(reader, cuboids_component_group_name=name) for name in names
        ]
        cuboids = sum(len(list(each.get_cuboid_track_observations())) for each in sets)
        report.checked.append(
            f"nvidia-ncore: frames of {', '.join(counts) or 'no sensor'}, their poses in the "
            f"world, {cuboids} cuboids"
        )


def _check_label(name: str, labels: Any, t_us: int) -> None:
    """Read a label, and check that each pixel has a value of the shape that is described."""
    values = labels.get_label(t_us).get_data()
    shape = tuple(labels.label_descriptor.label_schema.shape_suffix)
    if values.ndim != 2 + len(shape) or values.shape[2:] != shape:
        raise ValueError(
            f"{name}, {t_us} us: has shape {list(values.shape)}, not [height, width] and {shape}"
        )


def _check_calibrations(reader: Any, components: Any, compat: Any, report: ArchiveReport) -> None:
    """Read the instances of poses and of intrinsics besides the default ones."""
    loaders: list[Any] = []
    for component, argument in (
        (components.PosesComponent, "poses_component_group_name"),
        (components.IntrinsicsComponent, "intrinsics_component_group_name"),
    ):
        names = sorted({*reader.open_component_readers(component.Reader)} - {_DEFAULT})
        loaders += [compat.SequenceLoaderV4(reader, **{argument: name}) for name in names]
        if names:
            text = f"nvidia-ncore: {component.COMPONENT_NAME} of {', '.join(names)}"
            report.checked.append(text)
    for loader in loaders:
        for name in loader.camera_ids:
            sensor = loader.get_camera_sensor(name)
            _ = sensor.model_parameters
            loader.pose_graph.evaluate_poses(name, "world", sensor.frames_timestamps_us[:, 1])


def _find_stores(path: Path) -> list[Path]:
    """Return the stores of the sequence that a store belongs to, by name; the main one first."""
    found = _STORE.fullmatch(path.name)
    assert found is not None
    beside = path.parent.iterdir() if path.exists() else ()
    own = ((other, _STORE.fullmatch(other.name)) for other in beside)
    return sorted(
        (other for other, match in own if match and match["name"] == found["name"]),
        key=lambda other: ("ncore4-" in other.name, other.name),
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
