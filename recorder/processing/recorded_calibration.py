"""The calibration in a recording of others: places from transforms, models from cameras' topics.

What is not certain is left out, with the reason: a sensor whose frame moves in the rig, a camera
whose model has no counterpart, a model for another size of picture.

The rig's frame is ``rig`` (this recorder's archives) or ``base_link`` (REP-105: x forward, y left,
z up, as in the rig).  Camera frames are optical frames in both: z forward, x right, y down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import yaml

from recorder.contract.errors import FormatError
from recorder.formats.bags.bag import Bag
from recorder.formats.bags.contents import content_of, first_of
from recorder.formats.bags.messages import Kind
from recorder.formats.ros2.messages import CameraInfo, TransformStamped
from recorder.processing.geometry import (
    Floats,
    quaternion_of_rotation,
    rotation_of_quaternion,
    transform,
)
from recorder.processing.recordings import ImportedSensor

RIGS: Final = ("rig", "base_link")
"""Names of the rig's frame; the first one that the recording has is used."""

_READ: Final = 2000  # messages of transforms, of each topic
_STILL: Final = 1e-9  # a transform that changes by more moves
_PINHOLE: Final = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
_FISHEYE: Final = ("k1", "k2", "k3", "k4")
_TERMS: Final[Mapping[str, tuple[str, tuple[str, ...], tuple[int, ...]]]] = {
    "plumb_bob": ("opencv-pinhole", _PINHOLE, (4, 5)),
    "rational_polynomial": ("opencv-pinhole", _PINHOLE, (8,)),
    "equidistant": ("opencv-fisheye", _FISHEYE, (4,)),
    "kannala_brandt": ("opencv-fisheye", _FISHEYE, (4,)),
    "": ("opencv-pinhole", (), (0,)),
}
"""By the message's model: ours, its terms in order, and how many there may be."""


@dataclass(slots=True)
class RecordedCalibration:
    """What was found.

    Attributes:
        sensors: the entries of ``calibration.yaml`` by sensor.
        notes: a sentence for each sensor about what is left out, and why.
    """

    sensors: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def text(self) -> str | None:
        """The text of ``calibration.yaml``; None where nothing was found."""
        if not self.sensors:
            return None
        text: str = yaml.safe_dump({"sensors": self.sensors}, sort_keys=False)
        return text


def recorded_calibration(
    bag: Bag,
    topics: list[str],
    sensors: list[ImportedSensor],
    frames: Mapping[str, str],
    sizes: Mapping[str, tuple[int, int]],
) -> RecordedCalibration:
    """Make a calibration of a recording's topics.

    Args:
        bag: the recording.
        topics: those with transforms and models of cameras.
        sensors: what is imported.
        frames: by sensor, the frame in its messages.
        sizes: by camera, width and height of its pictures.

    Raises:
        FormatError: the file is damaged.
    """
    found = RecordedCalibration()
    tree, models = _Tree(), dict[str, CameraInfo]()
    for topic in topics:
        content = content_of(bag.topics[topic])
        if content.kind is Kind.TRANSFORMS:
            if topic.rpartition("/")[2] == "tf" and bag.topics[topic].message_encoding == "cdr":
                continue  # of ROS: what moves; what does not is on tf_static
            for number, message in enumerate(bag.messages([topic])):
                if number == _READ:
                    break
                for each in _decoded(content.decode, message.data) or ():
                    tree.add(each)
        else:
            first = first_of(bag, topic)
            info = None if first is None else _decoded(content.decode, first.data)
            if info is not None:
                models[topic] = info
    for sensor in sensors:
        entry: dict[str, Any] = {}
        frame = frames.get(sensor.name, "")
        try:
            if (pose := tree.in_rig(frame)) is not None:
                entry["T_sensor_rig"] = {
                    "translation_m": pose[:3, 3].tolist(),
                    "quaternion_xyzw": quaternion_of_rotation(pose[:3, :3]).tolist(),
                }
        except FormatError as error:
            found.notes.append(f"{sensor.name}: no place in the rig: {error}")
        if sensor.name in sizes and (info := _model_of(sensor.topic, frame, models)) is not None:
            try:
                entry |= _model(info, sizes[sensor.name])
            except FormatError as error:
                found.notes.append(f"{sensor.name}: no camera model: {error}")
        if entry:
            found.sensors[sensor.name] = entry
    return found


def _decoded(decode: Any, data: bytes) -> Any:
    try:
        return decode(data)
    except FormatError:
        return None


class _Tree:
    """Transforms from each frame to its parent."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._places: dict[str, Floats] = {}
        self._moves: dict[str, str] = {}

    def add(self, each: TransformStamped) -> None:
        parent, child = each.header.frame_id.lstrip("/"), each.child_frame_id.lstrip("/")
        if self._parents.setdefault(child, parent) != parent:
            self._moves[child] = f"{child!r:.80} has two parents"
            return
        try:
            place = transform(rotation_of_quaternion(each.rotation), each.translation)
        except ValueError:
            self._moves[child] = f"the transform of {child!r:.80} is no rotation"
            return
        if not np.isfinite(place).all():
            self._moves[child] = f"the transform of {child!r:.80} is not finite"
            return
        known = self._places.setdefault(child, place)
        if np.abs(known - place).max() > _STILL:
            self._moves[child] = f"{child!r:.80} moves in {parent!r:.80}"

    def in_rig(self, frame: str) -> Floats | None:
        """T_sensor_rig f8 [4, 4] of a frame; None where there are no transforms.

        Raises:
            FormatError: why there is none.
        """
        if not self._parents:
            return None
        frame = frame.lstrip("/")
        frames = {*self._parents, *self._parents.values()}
        rig = next((name for name in RIGS if name in frames), None)
        if rig is None:
            raise FormatError(f"the transforms have no frame {' or '.join(RIGS)}")
        if not frame:
            raise FormatError("its messages have no frame")
        pose, at, seen = np.eye(4), frame, {frame}
        while at != rig:
            if at in self._moves:
                raise FormatError(self._moves[at])
            if at not in self._places:
                raise FormatError(f"no transforms lead from its frame {frame!r:.80} to {rig!r}")
            pose, at = self._places[at] @ pose, self._parents[at]
            if at in seen:
                raise FormatError(f"the transforms of {frame!r:.80} are a ring")
            seen.add(at)
        return pose


def _model_of(topic: str, frame: str, models: Mapping[str, CameraInfo]) -> CameraInfo | None:
    """The model of a camera: beside its topic or above it, else the only one of its frame."""
    folder = topic
    while folder := folder.rpartition("/")[0]:
        beside = [info for name, info in models.items() if name.rpartition("/")[0] == folder]
        if beside:
            return beside[0] if len(beside) == 1 else None
    same = [info for info in models.values() if frame and info.header.frame_id == frame]
    return same[0] if len(same) == 1 else None


def _model(info: CameraInfo, size: tuple[int, int]) -> dict[str, Any]:
    """The entries of a camera model.

    Raises:
        FormatError: it has no counterpart, or is for another size.
    """
    if (info.width, info.height) != size:
        raise FormatError(
            f"it is for {info.width} x {info.height} pixels, the pictures have "
            f"{size[0]} x {size[1]}"
        )
    if info.distortion_model not in _TERMS:
        raise FormatError(f"{info.distortion_model!r:.60} is not known")
    name, terms, counts = _TERMS[info.distortion_model]
    if len(info.d) not in (*counts, 0):
        raise FormatError(f"{info.distortion_model} with {len(info.d)} terms")
    if info.binning_x > 1 or info.binning_y > 1 or info.roi.x_offset or info.roi.y_offset:
        raise FormatError("the pictures are binned, or parts of the sensor's")
    fx, skew, cx, zero, fy, cy, *last = info.k
    numbers = (*info.k, *info.d)
    if not np.isfinite(numbers).all() or not (fx > 0 and fy > 0) or (zero, *last) != (0, 0, 0, 1):
        raise FormatError("its camera matrix is none: the camera was not calibrated")
    if skew:
        raise FormatError("its camera matrix has a skew")
    values = {"fx": fx, "fy": fy, "cx": cx, "cy": cy}
    values |= dict(zip(terms, info.d, strict=False))
    return {
        "model": name,
        "parameters": {key: float(value) for key, value in values.items()},
        "resolution": [int(size[0]), int(size[1])],
    }
