"""Calibration from a recording of others: places from transforms, models from camera topics.

Uncertain parts are left out, with the reason: a sensor whose frame moves in the rig, a camera whose
model has no counterpart, a model for another picture size.

The rig's frame is ``rig`` (this recorder's archives) or ``base_link`` (REP-105: x forward, y left,
z up, as in the rig), or the one that the import's choices name.  Camera frames are optical frames:
z forward, x right, y down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import yaml

from recorder.common.errors import FormatError
from recorder.formats.bags.bag import Bag
from recorder.formats.bags.contents import find_content
from recorder.formats.bags.messages import Kind
from recorder.formats.ros2.messages import CameraInfo
from recorder.perception.geometry import Floats, quaternion_of_rotation
from recorder.perception.import_map import ImportMap
from recorder.perception.recorded_poses import grow_tree
from recorder.perception.recordings import ImportedSensor
from recorder.perception.transforms import FrameTree, name_frame

RIGS: Final = ("rig", "base_link")
"""Names of the rig's frame; the first one that the recording has is used."""

_MESSAGES: Final = ("CameraInfo", "CameraCalibration")  # of ROS, of Foxglove
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
    """The calibration found in a recording.

    Attributes:
        sensors: the entries of ``calibration.yaml`` by sensor.
        notes: a sentence for each omission, with its reason.
        tree: frames of the recording, with the mounts of the import's choices.
        rig: frame of the rig; "": the recording has none.
    """

    tree: FrameTree
    rig: str
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
    choices: ImportMap | None = None,
) -> RecordedCalibration:
    """Read a calibration from a recording's topics.

    Args:
        bag: the recording.
        topics: those with transforms and models of cameras.
        sensors: the imported sensors.
        frames: by sensor, the frame in its messages; sensors without a frame are left out.
        sizes: by camera, width and height of its pictures.
        choices: the import's choices.
    """
    choices, notes = choices or ImportMap(), list[str]()
    tree, models = grow_tree(bag, topics, notes.append), dict[str, CameraInfo]()
    rig = choices.rig or next((name for name in RIGS if name in tree.frames), "")
    for mount in choices.mounts:
        rig = rig or RIGS[-1]
        tree.fix(name_frame(mount.frame), name_frame(mount.parent) or rig, mount.pose)
    found = RecordedCalibration(tree, rig, notes=notes)
    for topic in topics:
        if find_content(bag.topics[topic]).kind is not Kind.CAMERA_MODEL:
            continue
        if (info := next(_read(bag, topic, found.notes), None)) is not None:
            models[topic] = info
    for sensor in sensors:
        entry: dict[str, Any] = {}
        if (frame := frames.get(sensor.name)) is None:
            continue
        turn = np.eye(3)
        if (size := sizes.get(sensor.name)) is not None:
            rectified = _is_rectified(sensor.topic)
            try:
                info = _find_model(sensor.topic, frame, size, models)
                if info is not None:
                    turn = _read_rectification(info).T if rectified else turn
                    entry |= _convert_model(info, size, rectified=rectified)
            except FormatError as error:
                found.notes.append(f"{sensor.name}: no camera model: {error}")
        try:
            if (pose := _find_place(found, frame)) is not None:
                entry["T_sensor_rig"] = {
                    "translation_m": pose[:3, 3].tolist(),
                    "quaternion_xyzw": quaternion_of_rotation(pose[:3, :3] @ turn).tolist(),
                }
        except FormatError as error:
            found.notes.append(f"{sensor.name}: no place in the rig: {error}")
        if entry:
            found.sensors[sensor.name] = entry
    return found


def _read(bag: Bag, topic: str, notes: list[str]) -> Iterator[Any]:
    """Yield the decoded messages of a topic; note the first that cannot be read, and skip them."""
    decode, is_noted = find_content(bag.topics[topic]).decode, False
    try:
        for message in bag.messages([topic]):
            try:
                yield decode(message.read_data())
            except FormatError as error:
                if not is_noted:
                    notes.append(f"{topic}: not used for the calibration: {error}")
                is_noted = True
    except FormatError as error:
        notes.append(f"{topic}: not used for the calibration from here on: {error}")


def _find_place(found: RecordedCalibration, frame: str) -> Floats | None:
    """Return ``T_sensor_rig`` f8 [4, 4] of a frame; None without any transform.

    Raises:
        FormatError: the transforms give no place; the message has the reason.
    """
    if not found.tree.frames:
        return None
    if not found.rig:
        raise FormatError(f"the transforms have no frame {' or '.join(RIGS)}")
    if not frame:
        raise FormatError("its messages have no frame")
    return found.tree.place(frame, found.rig)


def _is_rectified(topic: str) -> bool:
    """Return whether a topic's pictures are rectified: ``image_rect`` and the like (image_proc)."""
    *_, name = topic.removesuffix("/compressed").split("/")
    return not {"rect", "rectified"}.isdisjoint(name.lower().split("_"))


def _find_model(
    topic: str, frame: str, size: tuple[int, int], models: Mapping[str, CameraInfo]
) -> CameraInfo | None:
    """Return the model for a camera's pictures, by their frame and size.

    The nearest model is used: the one beside the pictures' topic, or above it.  Without a frame,
    only such models are used.

    Args:
        topic: of the pictures.
        frame: of the pictures; "": not named.
        size: width and height of the pictures.
        models: by topic.

    Returns:
        None: the recording has no models.

    Raises:
        FormatError: none of the recording's models fits; the message has the reason.
    """
    if not models:
        return None
    frame = frame.lstrip("/")
    near: dict[str, int] = {}  # how near a model is to the pictures; -1: elsewhere
    for name in models:
        folder = name.rpartition("/")[0]
        is_near = folder == topic.rpartition("/")[0] or (folder and topic.startswith(f"{folder}/"))
        near[name] = len(folder) if is_near else -1
    fitting = []
    for name, info in models.items():
        of_info = info.header.frame_id.lstrip("/")
        if of_info == frame if of_info and frame else near[name] >= 0:
            fitting.append(name)
    if not fitting:
        closest = max(models, key=lambda name: near[name])
        if near[closest] < 0:
            raise FormatError(
                f"no {' or '.join(_MESSAGES)} is of the pictures' frame {frame!r:.80}"
            )
        other = models[closest].header.frame_id
        raise FormatError(f"{closest} is of the frame {other!r:.80}, the pictures of {frame!r:.80}")
    sized = [n for n in fitting if (models[n].width, models[n].height) == size] or fitting
    nearest = max(near[name] for name in sized)
    first, *others = (name for name in sized if near[name] == nearest)
    for name in others:
        if _list_values(models[name]) != _list_values(models[first]):
            raise FormatError(f"{first} and {name} both fit, and differ")
    return models[first]


def _list_values(info: CameraInfo) -> tuple[Any, ...]:
    """Return all values of a model that concern the pictures."""
    size = info.width, info.height, info.binning_x, info.binning_y, info.roi
    return *size, info.distortion_model, info.d, info.k, info.r, info.p


def _read_rectification(info: CameraInfo) -> Floats:
    """Return the rotation [3, 3] from the raw to the rectified camera; the identity without one."""
    rotation = np.reshape(info.r, (3, 3)) if len(info.r) == 9 else np.zeros((3, 3))
    is_rotation = np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3)
    return np.asarray(rotation if is_rotation else np.eye(3), np.float64)


def _convert_model(info: CameraInfo, size: tuple[int, int], *, rectified: bool) -> dict[str, Any]:
    """Return the entries of a camera model; for rectified pictures, by the projection matrix P.

    Raises:
        FormatError: it has no counterpart, or is for another size.
    """
    if (info.width, info.height) != size:
        raise FormatError(
            f"it is for {info.width} x {info.height} pixels, the pictures have "
            f"{size[0]} x {size[1]}"
        )
    if info.binning_x > 1 or info.binning_y > 1 or info.roi.x_offset or info.roi.y_offset:
        raise FormatError("the pictures are binned, or parts of the sensor's")
    if rectified:
        whole = len(info.p) == 12
        matrix = tuple(info.p[row + at] for row in (0, 4, 8) for at in range(3)) if whole else ()
        name, distortion, what = "opencv-pinhole", dict[str, float](), "its projection matrix"
    else:
        name, distortion = _convert_distortion(info)
        matrix, what = info.k, "its camera matrix"
    fx, skew, cx, zero, fy, cy, *last = matrix or (0,) * 9
    is_finite = np.isfinite((*matrix, *distortion.values())).all()
    if not is_finite or not (fx > 0 and fy > 0) or (zero, *last) != (0, 0, 0, 1):
        raise FormatError(f"{what} is none: the camera was not calibrated")
    if skew:
        raise FormatError(f"{what} has a skew")
    values = {"fx": fx, "fy": fy, "cx": cx, "cy": cy, **distortion}
    return {
        "model": name,
        "parameters": {key: float(value) for key, value in values.items()},
        "resolution": [int(size[0]), int(size[1])],
    }


def _convert_distortion(info: CameraInfo) -> tuple[str, dict[str, float]]:
    """Return our name of the model, and its terms.

    Raises:
        FormatError: it has no counterpart.
    """
    if info.distortion_model not in _TERMS:
        raise FormatError(f"{info.distortion_model!r:.60} is not known")
    name, terms, counts = _TERMS[info.distortion_model]
    if len(info.d) not in (*counts, 0):
        raise FormatError(f"{info.distortion_model} with {len(info.d)} terms")
    return name, dict(zip(terms, info.d, strict=False))
