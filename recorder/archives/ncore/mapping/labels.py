"""Packing of a session's labels as NCore components: cuboids, masks, point clouds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recorder.archives.context import PackingContext
from recorder.archives.ncore.format.cuboids import Cuboid, LabelSource, euler_xyz
from recorder.archives.ncore.format.point_clouds import (
    Attribute,
    CoordinateUnit,
    TransformType,
)
from recorder.archives.ncore.format.sequence import DEFAULT, SequenceWriter
from recorder.archives.shared_options import UnplacedKeys, choose_cuboids
from recorder.common.errors import FormatError, SessionError
from recorder.perception.frames import NS_PER_US
from recorder.perception.labels import (
    MANUAL,
    SIMULATED,
    cloud_folders,
    cuboid_files,
    mask_files,
    numbers,
    read_mask,
    text,
)

_SOURCES: Mapping[str, LabelSource] = {
    SIMULATED: "GT_SYNTHETIC",
    MANUAL: "GT_ANNOTATION",
    "EXTERNAL": "EXTERNAL",
    "GT_SYNTHETIC": "GT_SYNTHETIC",
    "GT_ANNOTATION": "GT_ANNOTATION",
}
_UNITS: Mapping[str, CoordinateUnit] = {"meters": "METERS", "unitless": "UNITLESS"}
_TRANSFORMS: Mapping[str, TransformType] = {
    "invariant": "INVARIANT",
    "direction": "DIRECTION",
    "point": "POINT",
}


def label_source(source: str) -> LabelSource:
    """Return NCore's constant for the source of labels; a program's name is ``AUTOLABEL``."""
    return _SOURCES.get(source, "AUTOLABEL")


def stays(
    context: PackingContext, sequence: SequenceWriter, component: str, instance: str, subject: str
) -> bool:
    """Return whether an instance is in a store that is kept; note that its file is left out."""
    if not sequence.keeps(component, instance):
        return False
    context.notes.add(
        f"left out: {component}/{instance} is in a store that is not packed again; pack without "
        "only",
        subject,
    )
    return True


def pack_cuboids(context: PackingContext, sequence: SequenceWriter, frames: set[str]) -> int:
    """Pack each set of ``_cuboids`` as an instance; return the number of cuboids.

    The instance ``default``, which loaders read unless another one is requested, is the set that
    the option ``cuboids`` names, a set of that name, or the preferred set.
    """
    count = 0
    files = cuboid_files(context.session.path)
    own = next((file for file in files if file.name == DEFAULT), None)
    default = choose_cuboids(context, files)
    if own is not None and context.options["cuboids"] in (None, DEFAULT):
        default = own
    for file in files:
        instance, unplaced = DEFAULT if file is default else file.name, UnplacedKeys()
        if instance == DEFAULT and sequence.keeps("cuboids", DEFAULT):
            instance = file.name
        if stays(context, sequence, "cuboids", instance, f"_cuboids/{file.path.name}"):
            continue
        if instance == DEFAULT and file is not default:
            raise SessionError(f"{file.path}: the option cuboids names another set as {DEFAULT}")
        if len(files) > 1:
            context.notes.add(f"is the instance {instance}", f"_cuboids/{file.path.name}")
        cuboids = sequence.cuboids(instance)
        cuboids.metadata["sets"] = {file.name: dict(file.header)}
        outside = unknown = 0
        source = label_source(file.source)
        with context.locate_errors(f"_cuboids/{file.path.name}"):
            for where, label in file.lines():
                frame = text(label, "frame", where)
                if frame not in frames:
                    unknown += 1
                    continue
                if not sequence.interval.holds(label["t_ns"] // NS_PER_US):
                    outside += 1
                    continue
                cuboids.add([_cuboid(label, frame, source, file.source, where)])
                unplaced.count(label)
                count += 1
        subject = f"_cuboids/{file.path.name}"
        if outside:
            context.notes.add(
                f"{outside} cuboids lie outside of {_extent(context)}: left out", subject
            )
        if unknown:
            context.notes.add(
                f"{unknown} cuboids are relative to no sensor packed: left out", subject
            )
        unplaced.note(context, subject)
    return count


def _extent(context: PackingContext) -> str:
    return "the recording" if context.session.whole is context.session else "the packed part"


def _cuboid(
    label: Mapping[str, Any], frame: str, source: LabelSource, version: str, where: str
) -> Cuboid:
    x, y, z, w = numbers(label, "quaternion_xyzw", 4, where)
    try:
        rotation = euler_xyz((x, y, z, w))
    except ValueError as error:
        raise FormatError(f"{where}: quaternion_xyzw: {error}") from None
    center, size = numbers(label, "center_m", 3, where), numbers(label, "size_m", 3, where)
    return Cuboid(
        text(label, "track", where),
        text(label, "class", where),
        label["t_ns"],
        frame,
        label["t_ns"],
        (center[0], center[1], center[2]),
        (size[0], size[1], size[2]),
        rotation,
        source,
        version,
    )


def pack_masks(
    context: PackingContext, sequence: SequenceWriter, cameras: Mapping[str, tuple[int, int]]
) -> int:
    """Pack the masks of the cameras (name: width and height); return the number of masks."""
    count = 0
    for camera, files in mask_files(context.session.path).items():
        if camera not in cameras:
            context.notes.add("masks of a camera that is not packed: left out", f"_masks/{camera}")
            continue
        if stays(context, sequence, "masks", DEFAULT, f"_masks/{camera}"):
            continue
        images = {}
        for name, path in files.items():
            with context.locate_errors(f"_masks/{camera}/{path.name}"):
                read_mask(path, cameras[camera])  # checks the mask
                images[name] = path.read_bytes()
        sequence.masks().camera(camera, images)
        count += len(images)
    return count


def pack_clouds(context: PackingContext, sequence: SequenceWriter, frames: set[str]) -> int:
    """Pack every set of ``_point_clouds``; return the number of clouds."""
    count = 0
    for folder in cloud_folders(context.session.path):
        subject = f"_point_clouds/{folder.name}"
        if stays(context, sequence, "point_clouds", folder.name, subject):
            continue
        writer = None
        left_out = 0
        with context.locate_errors(subject):
            for cloud in folder.clouds():
                inside = sequence.interval.holds(cloud.t_ns // NS_PER_US)
                if not inside or cloud.frame not in frames:
                    left_out += 1
                    continue
                if writer is None:
                    schema = {
                        name: Attribute(
                            str(values.dtype),
                            values.shape[1:],
                            _TRANSFORMS[folder.transforms.get(name, "invariant")],
                        )
                        for name, values in cloud.attributes.items()
                    }
                    writer = sequence.point_clouds(
                        folder.name,
                        unit=_UNITS[folder.unit],
                        attributes=schema,
                        metadata={"header": dict(folder.index.header)},
                    )
                with context.locate_errors(cloud.path.name):
                    writer.cloud(
                        cloud.t_ns,
                        cloud.frame,
                        cloud.xyz,
                        cloud.attributes,
                        data=cloud.data,
                        metadata=cloud.metadata,
                    )
                count += 1
        if left_out:
            where = f"outside of {_extent(context)}, or in no frame packed"
            context.notes.add(f"{left_out} clouds lie {where}: left out", subject)
    return count
