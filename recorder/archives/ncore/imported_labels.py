"""Labels of an NCore sequence as a session's files: cuboids, boxes, masks, clouds, camera labels.

Small files are read before the session is made (`SessionFile.prepare`).  Clouds and labels per
pixel are read at its end, one at a time; a damaged one is left out and counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from recorder.archives.importing import Contents, SessionFile
from recorder.common.errors import FormatError
from recorder.formats.ncore.sequence import NS_PER_US, Instance, NcoreSequence
from recorder.formats.ncore.streams import is_sensor
from recorder.perception.geometry import quaternion_of_rotation, rotation_of_rpy
from recorder.perception.labels import BOXES, CLOUDS, CUBOIDS, MANUAL, MASKS, SIMULATED

_SOURCES: Final = {"GT_SYNTHETIC": SIMULATED, "GT_ANNOTATION": MANUAL}
"""Our words for NCore's sources; the other two have the same names."""
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_BOXES: Final = "boxes"


def find_files(
    sequence: NcoreSequence, names: Mapping[str, str], contents: Contents
) -> Iterator[SessionFile]:
    """Yield the labels of a sequence.

    Args:
        sequence: the sequence.
        names: the session's sensors by their instances.
        contents: receives what is lost.
    """
    for name in sequence.instances("cuboids"):
        cuboids = sequence.instance("cuboids", name)
        assert cuboids is not None
        if (count := len(_observations(cuboids))) or not _is_default(name):
            yield _find_cuboids(cuboids, name, names, count)
    for name in sequence.instances("masks"):
        masks = sequence.instance("masks", name)
        assert masks is not None
        if not _is_default(name):
            contents.lost[masks.name] = "only the instance default is imported"
        elif found := dict(_find_masks(masks, names, contents)):
            what = f"masks of {', '.join(sorted({one[0] for one in found}))}"
            yield SessionFile(masks.name, what, partial(_write_masks, masks, found))
    for name in sequence.instances("cameras"):
        camera = sequence.instance("cameras", name)
        if camera is not None and name in names:
            yield from _find_boxes(camera, names[name])
    for name in sequence.instances("point_clouds"):
        clouds = sequence.instance("point_clouds", name)
        if clouds is not None and not is_sensor(clouds):
            count = len(clouds.times_us("pc_timestamps_us"))
            write = partial(_write_clouds, clouds, names, contents)
            yield SessionFile(clouds.name, f"{count} point clouds", complete=write)
    for name in sequence.instances("camera_labels"):
        labels = sequence.instance("camera_labels", name)
        assert labels is not None
        if (file := _find_camera_labels(sequence, labels, name, names, contents)) is not None:
            yield file


def _is_default(name: str) -> bool:
    return name == "default"


def file_name(name: str) -> str:
    """Return a name of a file or folder in a session for a name of a sequence."""
    return re.sub(r"[^A-Za-z0-9_.@-]", "_", name).strip(".")[:100] or "unnamed"


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        for line in lines:
            try:
                file.write(json.dumps(line, allow_nan=False) + "\n")
            except ValueError:
                text = f"{path.name}: a label has a number that is not finite: {line!r:.200}"
                raise FormatError(text) from None


def _observations(cuboids: Instance) -> list[Any]:
    found = cuboids.attributes("cuboids").get("cuboid_track_observations", [])
    if not isinstance(found, list):
        raise FormatError(f"{cuboids.where('cuboids')}: its observations are damaged")
    return found


def _find_cuboids(
    cuboids: Instance, name: str, names: Mapping[str, str], count: int
) -> SessionFile:
    sources = Counter(str(each.get("source")) for each in _observations(cuboids))
    lost = []
    if len(sources) > 1:
        lost.append(f"which of its sources a cuboid is of: {', '.join(sorted(sources))}")
    sets = cuboids.metadata.get("sets")
    header: dict[str, Any] = {}
    if isinstance(sets, dict) and len(sets) == 1:  # of this recorder's packer
        ((name, header),) = sets.items()
        header = dict(header) if isinstance(header, dict) else {}
    if not header:
        source = next(iter(sources), "EXTERNAL")
        header = {"source": _SOURCES.get(source, source)}
        versions = {str(v) for each in _observations(cuboids) if (v := each.get("source_version"))}
        if versions:
            header["maker"] = ", ".join(sorted(versions))[:200]
    header |= {"format": "recorder-cuboids", "version": 1}
    write = partial(_write_cuboids, cuboids, f"{file_name(name)}.jsonl", header, names)
    return SessionFile(cuboids.name, f"{count} cuboids", write, lost=lost)


def _write_cuboids(
    cuboids: Instance, name: str, header: Mapping[str, Any], names: Mapping[str, str], folder: Path
) -> None:
    try:
        lines = [_convert_cuboid(each, names) for each in _observations(cuboids)]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{cuboids.where('cuboids')}: a cuboid is damaged: {error!r}") from None
    lines.sort(key=lambda line: line["t_ns"])
    _write_lines(folder / CUBOIDS / name, [header, *lines])


def _convert_cuboid(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a line of a cuboid: its time is that of its frame, in which it is placed."""
    box, frame = values["bbox3"], values["reference_frame_id"]
    t_us, frame_us = int(values["timestamp_us"]), int(values["reference_frame_timestamp_us"])
    numbers = np.array([box["centroid"], box["dim"], box["rot"]], np.float64)
    if numbers.shape != (3, 3) or not np.isfinite(numbers).all() or min(t_us, frame_us) < 0:
        raise ValueError("its numbers are damaged")
    line = {
        "t_ns": frame_us * NS_PER_US,
        "frame": names.get(str(frame), str(frame)),
        "track": str(values["track_id"]),
        "class": str(values["class_id"]),
        "center_m": numbers[0].tolist(),
        "size_m": numbers[1].tolist(),
        "quaternion_xyzw": quaternion_of_rotation(rotation_of_rpy(numbers[2])).tolist(),
    }
    return line if t_us == frame_us else line | {"metadata": {"timestamp_us": t_us}}


def _find_masks(
    masks: Instance, names: Mapping[str, str], contents: Contents
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield camera and file of each mask, and its path."""
    for camera in masks.children("cameras"):
        listed = masks.attributes(f"cameras/{camera}").get("mask_names", [])
        if not isinstance(listed, list):
            raise FormatError(f"{masks.where(f'cameras/{camera}')}: its mask_names are damaged")
        for name in map(str, listed):
            if camera not in names:
                contents.lost[f"masks/default/{camera}"] = "a mask of no imported camera"
            else:
                yield (names[camera], f"{file_name(name)}.png"), f"cameras/{camera}/{name}"


def _write_masks(masks: Instance, found: Mapping[tuple[str, str], str], folder: Path) -> None:
    import cv2

    for (camera, name), path in found.items():
        image, _ = masks.encoded(path)
        if not image.startswith(_PNG):
            pixels = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_GRAYSCALE)
            if pixels is None:
                raise FormatError(f"{masks.where(path)}: is no image")
            image = cv2.imencode(".png", pixels)[1].tobytes()
        place = folder / MASKS / camera
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(image)


def _find_boxes(camera: Instance, name: str) -> Iterator[SessionFile]:
    """Yield the files of boxes, which this recorder's packer stores with the frames."""
    for key, header in camera.metadata.items():
        kind, _, set_name = key.partition("@")
        if kind == _BOXES and isinstance(header, dict):
            file = f"{name}@{file_name(set_name)}" if set_name else name
            header = header | {"format": "recorder-boxes", "version": 1, "camera": name}
            write = partial(_write_boxes, camera, key, header, f"{file}.jsonl")
            yield SessionFile(f"{camera.name}: {key}", "boxes in its pictures", write)


def _write_boxes(
    camera: Instance, key: str, header: Mapping[str, Any], name: str, folder: Path
) -> None:
    def read() -> Iterator[Mapping[str, Any]]:
        yield header
        for number, end_us in enumerate(camera.frames_us()[:, 1].tolist()):
            path = f"frames/{end_us}/generic_data"
            boxes = camera.attributes(path).get(key, [])
            if not isinstance(boxes, list) or not all(isinstance(box, dict) for box in boxes):
                raise FormatError(f"{camera.where(path)}: its {key} are damaged")
            for box in boxes:
                yield {"t_ns": end_us * NS_PER_US, "frame": number} | box

    _write_lines(folder / BOXES / name, read())


def _write_clouds(
    clouds: Instance, names: Mapping[str, str], contents: Contents, session: Path
) -> None:
    schema = clouds.attributes("pcs")
    attributes = schema.get("attribute_schemas") or {}
    own = clouds.metadata.get("header")
    header: dict[str, Any] = dict(own) if isinstance(own, dict) else {"source": "EXTERNAL"}
    header |= {
        "format": "recorder-point-clouds",
        "version": 1,
        "unit": str(schema.get("coordinate_unit", "METERS")).lower(),
        "attributes": {
            name: {"transform": str(about.get("transform_type", "INVARIANT")).lower()}
            for name, about in attributes.items()
        },
    }
    header.pop("frame", None)  # each line has its own
    folder = session / CLOUDS / file_name(clouds.name.partition("/")[2])
    folder.mkdir(parents=True)

    def read(number: int, t_us: int) -> dict[str, Any]:
        path = f"pcs/{number}"
        about = clouds.attributes(path)
        arrays = {name: clouds.array(f"{path}/{name}") for name in ("xyz", *attributes)}
        file = f"{number:06d}.npz"
        np.savez(folder / file, allow_pickle=False, **arrays)
        frame = str(about.get("reference_frame_id"))
        line = {"t_ns": t_us * NS_PER_US, "frame": names.get(frame, frame), "file": file}
        metadata = about.get("generic_meta_data")
        return line | ({"metadata": metadata} if metadata else {})

    times = clouds.times_us("pc_timestamps_us").tolist()
    lines = _read_each(clouds, enumerate(times), read, contents)
    _write_lines(folder / "index.jsonl", _chain(header, lines))


def _read_each(
    instance: Instance,
    places: Iterable[tuple[int, int]],
    read: Callable[[int, int], dict[str, Any]],
    contents: Contents,
) -> Iterator[dict[str, Any]]:
    """Yield the line of each label; count those that are damaged."""
    damaged = 0
    for number, t_us in places:
        try:
            yield read(number, t_us)
        except FormatError as error:
            damaged += 1
            contents.lost[instance.name] = f"{damaged} are damaged, the last one: {error}"


def _chain(header: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    yield header
    yield from lines


def _find_camera_labels(
    sequence: NcoreSequence,
    labels: Instance,
    name: str,
    names: Mapping[str, str],
    contents: Contents,
) -> SessionFile | None:
    descriptor = labels.attributes("labels").get("descriptor")
    try:
        camera, kind = descriptor["camera_id"], descriptor["label_type"]  # type: ignore[index]
        schema = descriptor["label_schema"]  # type: ignore[index]
        dtype = np.dtype(schema["dtype"]).str[1:]
        header = {
            "format": "recorder-camera-labels",
            "version": 1,
            "category": str(kind["category"]).lower(),
            "qualifier": str(kind["qualifier"]),
            "unit": None if kind.get("unit") is None else str(kind["unit"]).lower(),
            "source": str(descriptor["label_source"]),  # type: ignore[index]
            "dtype": dtype,
            "shape": list(schema.get("shape_suffix") or []),
            "encoding": str(schema.get("encoded_format") or "raw").lower(),
        }
        quantization = schema.get("quantization")
        if quantization:
            stored = np.dtype(quantization["quantized_dtype"]).str[1:]
            rule = {"scale": float(quantization["scale"]), "offset": float(quantization["offset"])}
            header["quantization"] = {"dtype": stored, **rule}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        where = labels.where("labels")
        raise FormatError(f"{where}: its descriptor is damaged: {error!r}") from None
    if camera not in names:
        contents.lost[labels.name] = f"its camera {camera} is not imported"
        return None
    kind_name = f"{header['category']}.{header['qualifier']}"
    set_name = name.removeprefix(f"{kind_name}@{camera}").removeprefix("@")
    folder = file_name(f"{kind_name}@{set_name}" if set_name != name and set_name else kind_name)
    if set_name == name:  # named in another way than this recorder does
        folder = file_name(f"{kind_name}@{name}")
    if labels.metadata:
        header["metadata"] = dict(labels.metadata)
    ends = sequence.instances("cameras")[camera].frames_us()[:, 1]
    write = partial(_write_camera_labels, labels, header, names[camera], folder, ends, contents)
    count = len(labels.times_us("timestamps_us"))
    return SessionFile(labels.name, f"{count} labels {kind_name} of {camera}", complete=write)


def _write_camera_labels(
    labels: Instance,
    header: Mapping[str, Any],
    camera: str,
    name: str,
    ends_us: Any,
    contents: Contents,
    session: Path,
) -> None:
    folder = session / BOXES / camera / name
    folder.mkdir(parents=True)
    raw = header["encoding"] == "raw"

    def read(number: int, t_us: int) -> dict[str, Any]:
        path = f"labels/{t_us}"
        data = labels.array(f"{path}/data")
        file = f"{number:06d}.{'npy' if raw else header['encoding']}"
        if not raw:
            (folder / file).write_bytes(data.tobytes())
        else:
            if rule := header.get("quantization"):
                data = data.astype(np.float64) * rule["scale"] + rule["offset"]
            np.save(folder / file, data.astype(f"<{header['dtype']}"), allow_pickle=False)
        line: dict[str, Any] = {"t_ns": t_us * NS_PER_US, "file": file}
        at = int(np.searchsorted(ends_us, t_us))
        if at < len(ends_us) and ends_us[at] == t_us:
            line["frame"] = at
        metadata = labels.attributes(path).get("generic_meta_data")
        return line | ({"metadata": metadata} if metadata else {})

    times = np.sort(labels.times_us("timestamps_us")).tolist()
    lines = _read_each(labels, enumerate(times), read, contents)
    _write_lines(folder / "index.jsonl", _chain(header, lines))
