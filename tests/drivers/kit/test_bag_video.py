"""Video in recordings: H.264 of EdgeFirst's recorders and of Foxglove, as it came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foxglove import messages as foxglove
from rosbags.typesys import get_types_from_msg

from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Lost, Sample
from drivers.kit.runner import make_driver
from recorder.common.errors import SourceError
from tests import h264
from tests.formats.bags.kit import (
    START_NS,
    STORE,
    Sent,
    cdr,
    fox_time,
    proto,
    ros_time,
    write_mcap,
)
from tests.support.devices import play

KIND = "foxglove_msgs/msg/CompressedVideo"
TEXT = "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n"
STORE.register(get_types_from_msg(TEXT, KIND))
STEP_NS = 40_000_000


def of_ros(at: int, data: bytes, form: str = "h264") -> Sent:
    log_ns = START_NS + at * STEP_NS
    array = np.frombuffer(data, np.uint8)
    fields: dict[str, Any] = {"timestamp": ros_time(log_ns - 9), "frame_id": "camera_optical"}
    return cdr("/camera/h264", KIND, log_ns, data=array, format=form, **fields)


def of_foxglove(at: int, data: bytes, form: str = "h264") -> Sent:
    log_ns = START_NS + at * STEP_NS
    stamp = fox_time(log_ns - 9)
    video = foxglove.CompressedVideo(
        timestamp=stamp, frame_id="camera_optical", data=data, format=form
    )
    return proto("/camera/h264", video, log_ns)


def played(path: Path) -> tuple[Any, list[Any]]:
    entry = {"name": "s", "scheme": "bag", "address": str(path), "options": {}, "pace": "max"}
    return play(make_driver(CameraDriver, entry))


@pytest.mark.parametrize("make", [of_ros, of_foxglove])
def test_access_units_go_on_byte_for_byte(tmp_path: Path, make: Any) -> None:
    units = h264.encode(12)
    sent = [make(at, unit) for at, unit in enumerate(units)]
    spec, items = played(write_mcap(tmp_path / "a.mcap", sent))
    assert (spec.channels[0].name, spec.channels[0].format) == ("video.h264", "h264")
    assert spec.channels[0].shape == (h264.SIZE[1], h264.SIZE[0], 3)
    assert spec.settings["passed_through"] and spec.settings["mcap_frame"] == "camera_optical"
    assert [item.data["video.h264"] for item in items] == [[unit] for unit in units]
    assert [int(item.t_ns[0]) for item in items] == [
        START_NS - 9 + at * STEP_NS for at in range(12)
    ]


def test_pictures_before_the_first_keyframe_are_counted(tmp_path: Path) -> None:
    units = h264.encode(12)
    sent = [of_ros(at, unit) for at, unit in enumerate(units)][2:]
    sent[5] = of_ros(7, b"\0\0\0\1")
    _, items = played(write_mcap(tmp_path / "a.mcap", sent))
    told = [(item.cause, item.count) for item in items if isinstance(item, Lost)]
    assert told == [("joining", 1)] * 3 + [("corrupt", 1)]
    kept = [item.data["video.h264"][0] for item in items if isinstance(item, Sample)]
    assert kept == [*units[5:7], *units[8:]]


def test_video_that_is_not_recorded_is_named(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "a.mcap", [of_ros(0, b"\0\0\0\1\x40\1", "h265")])
    with pytest.raises(SourceError, match=r"video in 'h265': only h264 is recorded"):
        played(path)
