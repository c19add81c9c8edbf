"""Declarations of streams: what may be declared, and what goes over the wire and to disk."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.codecs import RECORDED_FORMATS
from recorder.codecs.points import Column
from recorder.codecs.streams import ChannelSpec, StreamSpec, points_channel
from recorder.common.errors import ProtocolError

DTYPES = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]


def point_columns() -> st.SearchStrategy[Column]:
    sizes = st.lists(st.integers(1, 9), max_size=2).map(tuple)
    kinds, text = st.sampled_from(["u1", "u2", "i4", "f4", "f8"]), st.text(max_size=5)
    return st.builds(Column, st.sampled_from(["xyz", "ring", "a"]), kinds, sizes, text, text)


@st.composite
def channels(draw: st.DrawFn, name: str) -> ChannelSpec:
    format_ = draw(st.sampled_from(RECORDED_FORMATS))
    size = st.integers(1, 64)
    shape = tuple(draw(st.lists(size, max_size=3)))
    dtype = draw(st.sampled_from(DTYPES))
    if format_ in ("mjpg", "h264"):
        shape, dtype = (draw(size), draw(size), 3), "u1"
    if format_ == "zstdf":
        dtype = draw(st.sampled_from([each for each in DTYPES if each[0] in "iu"]))
    if format_ == "bytes":
        shape, dtype = (draw(size),), "u1"
    text = st.text(max_size=10)
    if format_ == "points":
        columns = draw(st.lists(point_columns(), min_size=1, unique_by=lambda c: c.name))
        return points_channel(columns, draw(text), name)
    flags = (draw(st.booleans()), draw(st.booleans()))
    return ChannelSpec(name, format_, dtype, shape, draw(text), draw(text), *flags)


@st.composite
def specs(draw: st.DrawFn) -> StreamSpec:
    names = draw(
        st.lists(st.sampled_from(["a", "b1", "c_d", "video.avi"]), min_size=1, unique=True)
    )
    return StreamSpec(
        name=draw(st.sampled_from(["imu", "lidar_2", "x"])),
        channels=tuple(draw(channels(name)) for name in names),
        rate_hz=draw(st.none() | st.floats(1e-3, 1e5)),
        device_clock=draw(st.booleans()),
        bytes_per_sample=draw(st.integers(0, 2**31)),
        finite=draw(st.booleans()),
        description=draw(st.text(max_size=10)),
        files=draw(st.dictionaries(st.sampled_from(["lidar.json", "cal.yaml"]), st.text())),
        settings=draw(st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=2)),
    )


@given(specs())
def test_a_declaration_survives_msgpack_and_json(spec: StreamSpec) -> None:
    assert StreamSpec.from_wire(msgpack.unpackb(msgpack.packb(spec.to_wire()))) == spec
    assert StreamSpec.from_wire(json.loads(json.dumps(spec.to_wire()))) == spec


@given(specs())
def test_meta_tells_every_file_of_the_stream(spec: StreamSpec) -> None:
    meta = spec.meta()
    times = ["ts", "seq", "t_mono"] + ["t_dev"] * spec.device_clock
    assert list(meta) == times + [c.name for c in spec.channels]
    for channel in spec.channels:
        entry = meta[channel.name]
        columns = {"columns"} if entry["format"] == "points" else set()
        assert set(entry) == {"format", "type", "shape", "desc"} | columns
        assert (entry["format"], entry["type"]) == (channel.format, channel.dtype)
        assert tuple(entry["shape"]) == channel.shape
        assert spec.channel(channel.name) is channel
    with pytest.raises(KeyError):
        spec.channel("nowhere")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"name": "Rng"}, "'Rng'"),
        ({"name": ""}, "''"),
        ({"name": "../rng"}, "rng"),
        ({"name": "ts"}, "'ts'"),
        ({"name": "t_mono"}, "'t_mono'"),
        ({"name": "meta.json"}, "'meta.json'"),
        ({"format": "npz"}, "'npz' is not recorded"),
        ({"dtype": "u3"}, "'u3' is unknown"),
        ({"dtype": "<u2"}, "'<u2' is unknown"),
        ({"shape": (0,)}, "whole sizes"),
        ({"shape": (2, -1)}, "whole sizes"),
        ({"shape": (2.0,)}, "whole sizes"),
        ({"format": "mjpg"}, "mjpg holds u1"),
        ({"format": "mjpg", "dtype": "u1", "shape": (4, 4)}, "mjpg holds u1"),
        ({"format": "mjpg", "dtype": "u1", "shape": (4, 4, 1)}, "mjpg holds u1"),
    ],
)
def test_channels_that_may_not_be(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        ChannelSpec(**({"name": "rng", "format": "raw", "dtype": "u2", "shape": (2,)} | values))
    assert text in str(caught.value)


RNG = ChannelSpec("rng", "lzmaf", "u2", (2,))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"name": "Lidar"}, "'Lidar'"),
        ({"name": "_recorder"}, "'_recorder'"),
        ({"name": "a" * 65}, "not a name"),
        ({"channels": ()}, "declares no channel"),
        ({"channels": (RNG, RNG)}, "two files would be named 'rng'"),
        ({"channels": (RNG, ChannelSpec("rng_i", "raw", "u2"))}, "'rng_i'"),
        ({"files": {"rng": ""}}, "'rng'"),
        ({"files": {"rng_i": ""}}, "'rng_i'"),
        ({"files": {"ts": ""}}, "'ts'"),
        ({"files": {"meta.json": ""}}, "'meta.json'"),
        ({"files": {"../lidar.json": ""}}, "no file name"),
        ({"files": {"a/b": ""}}, "no file name"),
        ({"rate_hz": 0}, "rate 0 Hz"),
        ({"rate_hz": -1.0}, "out of range"),
        ({"rate_hz": float("inf")}, "out of range"),
        ({"rate_hz": float("nan")}, "out of range"),
    ],
)
def test_streams_that_may_not_be(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        StreamSpec(**({"name": "lidar", "channels": (RNG,)} | values))
    assert text in str(caught.value)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["name", "channels", "shape", "format", "dtype"]), inner, max_size=5
            )
        ),
        max_leaves=8,
    ).filter(lambda wire: isinstance(wire, dict))
)
def test_a_foreign_declaration_is_a_protocol_error(wire: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        StreamSpec.from_wire(wire)


def test_wrong_types_in_a_declaration_are_protocol_errors() -> None:
    good = StreamSpec("lidar", (RNG,), rate_hz=10.0).to_wire()
    assert StreamSpec.from_wire(good).name == "lidar"
    channel = good["channels"][0]
    bad: list[dict[str, Any]] = [
        good | {"name": 5},
        good | {"rate_hz": "fast"},
        good | {"more": 1},
        good | {"channels": None},
        good | {"channels": [channel | {"name": 5}]},
        good | {"channels": [channel | {"dtype": ["u2"]}]},
        good | {"channels": [channel | {"shape": 5}]},
        good | {"channels": [channel | {"shape": ["a"]}]},
    ]
    for wire in bad:
        with pytest.raises(ProtocolError):
            StreamSpec.from_wire(wire)


def test_expected_rate_of_bytes() -> None:
    spec = StreamSpec("a", (ChannelSpec("x", "raw", "u2", (3, 4)),), rate_hz=10.0)
    assert spec.bytes_per_second == 240
    assert StreamSpec("a", spec.channels).bytes_per_second == 24
    assert StreamSpec("a", spec.channels, 5.0, bytes_per_sample=7).bytes_per_second == 35


def test_a_sporadic_stream_is_declared_as_one_and_others_as_before() -> None:
    """Recorders of before read a declaration without the key."""
    usual = StreamSpec("bus_speed", (RNG,))
    assert "sporadic" not in usual.to_wire() and not StreamSpec.from_wire(usual.to_wire()).sporadic
    sporadic = StreamSpec("bus_speed", (RNG,), sporadic=True)
    assert StreamSpec.from_wire(sporadic.to_wire()) == sporadic
