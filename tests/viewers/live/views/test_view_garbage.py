"""Views of damaged messages: an error that names the stream, and never another one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, ProtocolError
from recorder.common.files import Buffer
from recorder.viewers.live.views import list_views, make_view
from recorder.viewers.live.views.drawing import View
from tests.session.build import content, imu_spec
from tests.viewers.live.views.sensors import first, message_of

SENSORS = ("camera", "lidar", "radar", "imu")


@functools.cache
def made(sensor: str) -> tuple[StreamSpec, Message, dict[str, View], dict[str, View]]:
    """A declaration, a whole message, its views, and those that do less."""
    spec, _, message = first(sensor)
    names = list_views(spec)
    less = {"picture": {"width": 100}, "sweep": {"points": 999}, "range_doppler": {"detections": 0}}
    views = {name: make_view(spec, name, {}) for name in names}
    return spec, message, views, {name: make_view(spec, name, less.get(name, {})) for name in names}


def check(sensor: str, message: Message) -> int:
    """Every view draws the message, or says what is wrong with it; returns how many draw."""
    spec, _, *both = made(sensor)
    drawn = 0
    actions: list[Callable[[], object]] = []
    for views in both:
        actions += [functools.partial(view.draw, [message]) for view in views.values()]
    for action in actions:
        try:
            drawn += action() is not None
        except (FormatError, ProtocolError) as error:
            assert spec.name in str(error)
    return drawn


@pytest.mark.parametrize("sensor", SENSORS)
def test_whole_messages_are_drawn(sensor: str) -> None:
    _, message, views, less = made(sensor)
    assert check(sensor, message) == len(views) + len(less)


@pytest.mark.parametrize("sensor", SENSORS)
@given(data=st.data())
def test_damaged_frames_are_refused_or_drawn(sensor: str, data: st.DataObject) -> None:
    """Bits are changed, ends are cut, in frames whose sizes are then right all the same."""
    spec, message, _, _ = made(sensor)
    at = data.draw(st.integers(0, len(message.frames) - 1))
    frame = bytearray(message.frames[at])
    match data.draw(st.sampled_from(["flip", "cut", "other", "repeat", "empty"])):
        case "flip":
            for place in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=20)):
                frame[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            frame = frame[: data.draw(st.integers(0, len(frame)))]
        case "other":
            frame = bytearray(data.draw(st.binary(max_size=200)))
        case "repeat":
            frame = frame + frame
        case _:
            frame = bytearray()
    frames: list[Buffer] = list(message.frames)
    frames[at] = bytes(frame)
    sizes = list(message.sizes)
    variable = [channel.name for channel in spec.channels if channel.variable]
    if spec.channels[at].name in variable and data.draw(st.booleans()):
        sizes[variable.index(spec.channels[at].name)] = np.array([len(frame)], np.uint32)
    check(sensor, replace(message, frames=frames, sizes=tuple(sizes)))


@pytest.mark.parametrize("sensor", SENSORS)
@given(
    kept=st.integers(0, 5),
    count=st.sampled_from([None, 0, 1, 2, 1_000_000_000]),
    sizes=st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=3), max_size=4),
)
def test_headers_of_another_message_are_refused(
    sensor: str, kept: int, count: int | None, sizes: list[list[int]]
) -> None:
    _, message, _, _ = made(sensor)
    check(
        sensor,
        replace(
            message,
            frames=list(message.frames)[:kept],
            count=count,
            sizes=tuple(np.array(one, np.uint32) for one in sizes),
        ),
    )


def test_messages_of_another_stream_are_refused() -> None:
    """A driver that has restarted with other settings sends what its declaration does not say."""
    for sensor in SENSORS:
        for other in SENSORS:
            if other != sensor:
                assert check(sensor, made(other)[1]) == 0


def test_values_that_are_no_numbers_are_drawn() -> None:
    spec = imu_spec()
    data = content(spec, 3)
    data["acc"][1] = [np.nan, np.inf, -np.inf]
    drawing = make_view(spec, "series", {}).draw([message_of(spec, data)])
    assert drawing is not None
    assert np.array_equal(np.asarray(dict(drawing.arrays)["acc"]), data["acc"], equal_nan=True)
