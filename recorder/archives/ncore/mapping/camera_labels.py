"""Packing of labels with a value per pixel: ``_labels/CAMERA/KIND``, and classes of roverd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.ncore.format.cameras import encode_png
from recorder.archives.ncore.format.labels import (
    CameraLabelsWriter,
    Category,
    ImageEncoded,
    LabelDescriptor,
    LabelType,
    Quantization,
    Raw,
    Unit,
)
from recorder.archives.ncore.format.sequence import SequenceWriter
from recorder.archives.ncore.mapping.labels import label_source, stays
from recorder.archives.ncore.mapping.sensors import Camera
from recorder.perception.camera_labels import (
    CameraLabel,
    CameraLabelFolder,
    camera_label_folders,
)
from recorder.perception.labels import BOXES

SEGMENT = "segment"
"""Channel of the virtual sensor ``_CAMERA`` that holds a class per pixel, as in roverd."""
_PICTORIAL = ("material", "other")
"""Categories whose values may show what redacted pictures must not show."""


class LabelItem(NamedTuple):
    """A label: its picture's sample, its place for messages, its values, and its metadata."""

    at: int
    place: tuple[str, int | None]
    read: Callable[[], npt.NDArray[Any] | bytes]
    metadata: Mapping[str, Any]


def pack_camera_labels(
    context: PackingContext, sequence: SequenceWriter, cameras: Mapping[str, Camera]
) -> int:
    """Pack all labels of the packed cameras' pictures; return the number of labels."""
    count, packed = 0, set[str]()
    for folder in camera_label_folders(context.session.path):
        subject = f"{BOXES}/{folder.camera}/{folder.name}"
        camera = cameras.get(folder.camera)
        if camera is None:
            context.notes.add("labels of a camera that is not packed: left out", subject)
            continue
        about = context.redaction.get(camera.name, {"kept": True})
        if not about.get("kept") and folder.category in _PICTORIAL:
            text = "left out: its pictures are redacted, and these labels may show them"
            context.notes.add(text, subject)
            continue
        descriptor = _describe(folder)
        instance = descriptor.instance + (f"@{folder.set_name}" if folder.set_name else "")
        if stays(context, sequence, "camera_labels", instance, subject):
            continue
        metadata = {"header": dict(folder.index.header)}
        make = partial(sequence.camera_labels, descriptor, instance, metadata=metadata)
        count += pack_items(context, subject, camera, _read_folder(folder, camera, subject), make)
        packed.add(instance)
    for camera in cameras.values():
        count += _pack_segments(context, sequence, camera, packed)
    return count


def _describe(folder: CameraLabelFolder) -> LabelDescriptor:
    unit = None if folder.unit is None else cast("Unit", folder.unit.upper())
    encoding: Raw | ImageEncoded
    if folder.encoding == "raw":
        steps = folder.steps
        rule = None if steps is None else Quantization(steps.dtype, steps.scale, steps.offset)
        encoding = Raw(str(folder.dtype), folder.shape, rule)
    else:
        encoding = ImageEncoded(str(folder.dtype), folder.encoding, folder.shape)
    return LabelDescriptor(
        folder.camera,
        LabelType(cast("Category", folder.category.upper()), folder.qualifier, unit),
        encoding,
        label_source(folder.source),
    )


def _read_folder(folder: CameraLabelFolder, camera: Camera, subject: str) -> Iterator[LabelItem]:
    def read(label: CameraLabel) -> npt.NDArray[Any] | bytes:
        values = folder.read(label)
        if folder.encoding == "png" and isinstance(values, np.ndarray):
            return encode_png(values)
        return values

    stream = camera.stream
    for label in folder.labels():
        frame = stream.whole.at(label.t_ns) if label.frame is None else label.frame
        place = f"{subject}/{label.file}", None
        metadata = {"sample": frame, **label.metadata}
        yield LabelItem(frame - stream.first, place, partial(read, label), metadata)


def pack_items(
    context: PackingContext,
    subject: str,
    camera: Camera,
    items: Iterator[LabelItem],
    make: Callable[[], CameraLabelsWriter],
) -> int:
    """Pack labels of one kind; return their number, and note those that are left out.

    A picture has one label, and labels are stored in the order of the pictures.
    """
    writer: CameraLabelsWriter | None = None
    count, left_out, last = 0, 0, -1
    for item in context.locate_items(subject, items):
        end_ns = camera.ends.find(item.at)
        if end_ns is None or item.at <= last:
            left_out += 1
            continue
        last = item.at
        with context.locate_errors(*item.place):
            writer = writer or make()
            writer.label(end_ns, item.read(), metadata=item.metadata)
        count += 1
    if left_out:
        text = f"{left_out} labels belong to no packed picture, or to one that has a label"
        context.notes.add(f"{text}: left out", subject)
    return count


def _pack_segments(
    context: PackingContext, sequence: SequenceWriter, camera: Camera, packed: set[str]
) -> int:
    """Pack a class per pixel, from the virtual sensor ``_CAMERA``; return the number of labels."""
    virtual = context.session.streams.get(f"_{camera.name}")
    if virtual is None or SEGMENT not in virtual.meta:
        return 0
    entry = virtual.meta[SEGMENT]
    descriptor = LabelDescriptor(
        camera.name,
        LabelType("SEGMENTATION", "semantic", "UNITLESS"),
        ImageEncoded("uint8"),
        "AUTOLABEL",
    )
    problem = ""
    if np.dtype(entry["type"]) != np.uint8 or len(entry["shape"]) != 2:
        problem = "is not u1 [height, width]"
    elif not virtual.has_times and len(virtual) != len(camera.stream):
        problem = f"has no times, and {len(virtual)} samples, not {len(camera.stream)}"
    elif descriptor.instance in packed:
        problem = f"{BOXES}/{camera.name}/segmentation.semantic is packed"
    elif sequence.keeps("camera_labels", descriptor.instance):
        problem = "is in a store that is not packed again"
    if problem:
        context.notes.add(f"{SEGMENT} {problem}: left out", virtual.name)
        return 0

    def read_segments() -> Iterator[LabelItem]:
        for index in range(len(virtual)):
            at = index
            if virtual.has_times:
                t_ns = int(virtual.times(index, index + 1)[0])
                at = camera.stream.whole.at(t_ns) - camera.stream.first
            sample = {"sample": index + virtual.first}
            yield LabelItem(at, (virtual.name, index), partial(read, index), sample)

    def read(index: int) -> bytes:
        return encode_png(virtual.sample(index, [SEGMENT])[SEGMENT])

    make = partial(
        sequence.camera_labels, descriptor, metadata={"description": entry.get("desc", "")}
    )
    return pack_items(context, virtual.name, camera, read_segments(), make)
