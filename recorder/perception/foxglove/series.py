"""Streams of small numbers as JSON, and positions as LocationFix."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from foxglove.messages import LocationFix, LocationFixPositionCovarianceType, Vector3

from recorder.bus.wire import Message
from recorder.codecs import Framing
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.perception.earth import is_position
from recorder.perception.encoded import EncodedSamples
from recorder.perception.foxglove.channels import (
    Encoded,
    SampleChannel,
    Schema,
    schema_of,
    stamp,
    times_ns,
)

_SMALL_BYTES: Final = 1024  # a channel's sample
_ENU_OF_NED: Final = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])


def json_channels(spec: StreamSpec) -> list[SampleChannel]:
    """Return the topic ``/NAME``: the small numeric channels of a stream; [] without such channels.

    A scalar is a number, an array a flat list in C order; a value that is not finite is null.
    """
    chosen = small_channels(spec)
    if not chosen:
        return []
    samples = EncodedSamples(spec)
    device = spec.device_clock

    def encode(message: Message, offset_ns: int) -> Encoded:
        samples.check(message)
        values = {c.name: _to_lists(samples.every(message, c.name), c) for c in chosen}
        encoded: Encoded = []
        for index, t_ns in enumerate(times_ns(message, offset_ns)):
            sample: dict[str, Any] = {
                "timestamp": {"sec": t_ns // 1_000_000_000, "nsec": t_ns % 1_000_000_000},
                "seq": message.seq + index,
            }
            if device and message.t_dev_ns is not None:
                sample["t_dev"] = int(message.t_dev_ns[index])
            sample |= {name: listed[index] for name, listed in values.items()}
            encoded.append((t_ns, [json.dumps(sample, allow_nan=False).encode()]))
        return encoded

    schema = Schema(f"recorder.{spec.name}", "jsonschema", _encode_schema(spec, chosen))
    return [SampleChannel(f"/{spec.name}", schema, spec.name, encode, every=True)]


def small_channels(spec: StreamSpec) -> list[ChannelSpec]:
    """Return the channels that `json_channels` packs: plain numbers of at most 1 KiB a sample."""
    return [channel for channel in spec.channels if _is_small(channel)]


def position_channel(spec: StreamSpec, position: str) -> SampleChannel:
    """Return the topic ``/NAME/fix``: the positions of a stream.

    A sample without a position gives no message.

    Args:
        spec: the stream's declaration.
        position: its channel f8 [2 or 3] with latitude and longitude in degrees, and the height
            above the ellipsoid in m.  A covariance is read from ``cov``, a velocity from ``vel``,
            where they are declared as north, east, down.
    """
    further = {
        name: shape
        for name, shape in (("cov", (3, 3)), ("vel", (3,)))
        if any(
            channel.name == name
            and channel.shape == shape
            and "north, east, down" in channel.description
            for channel in spec.channels
        )
    }
    samples = EncodedSamples(spec)

    def encode(message: Message, offset_ns: int) -> Encoded:
        samples.check(message)
        arrays = {name: samples.every(message, name) for name in (position, *further)}
        encoded: Encoded = []
        for index, t_ns in enumerate(times_ns(message, offset_ns)):
            place = arrays[position][index].astype(np.float64)
            if is_position(place):
                more = {name: arrays[name][index] for name in further}
                encoded.append((t_ns, [_encode_fix(spec.name, t_ns, place, more)]))
        return encoded

    return SampleChannel(f"/{spec.name}/fix", schema_of(LocationFix), spec.name, encode, every=True)


def _encode_fix(
    frame: str, t_ns: int, place: npt.NDArray[np.float64], more: dict[str, npt.NDArray[Any]]
) -> bytes:
    values: dict[str, Any] = {}
    if "cov" in more and np.isfinite(more["cov"]).all():
        covariance = _ENU_OF_NED @ more["cov"].astype(np.float64) @ _ENU_OF_NED.T
        values["position_covariance"] = covariance.reshape(-1).tolist()
        values["position_covariance_type"] = LocationFixPositionCovarianceType.Known
    if "vel" in more and np.isfinite(more["vel"]).all():
        north, east, down = more["vel"].astype(np.float64).tolist()
        values["velocity"] = Vector3(x=east, y=north, z=-down)
    if len(place) > 2 and np.isfinite(place[2]):
        values["altitude"] = float(place[2])
    fix = LocationFix(
        timestamp=stamp(t_ns),
        frame_id=frame,
        latitude=float(place[0]),
        longitude=float(place[1]),
        **values,
    )
    return fix.encode()


def _is_small(channel: ChannelSpec) -> bool:
    numeric = channel.np_dtype.kind in "fiu" and not channel.picture
    return numeric and channel.framing is Framing.PLAIN and channel.sample_bytes <= _SMALL_BYTES


def _to_lists(values: npt.NDArray[Any], channel: ChannelSpec) -> list[Any]:
    """Convert values [n, *shape] to n numbers or flat lists."""
    flat = values.reshape(len(values), -1)
    rows: list[list[Any]] = flat.tolist()
    if channel.np_dtype.kind == "f" and not np.isfinite(flat).all():
        good = np.isfinite(flat).tolist()
        rows = [
            [value if fine else None for value, fine in zip(row, fine_row, strict=True)]
            for row, fine_row in zip(rows, good, strict=True)
        ]
    return rows if channel.shape else [row[0] for row in rows]


def _encode_schema(spec: StreamSpec, channels: list[ChannelSpec]) -> bytes:
    """Return the JSON schema of a stream's samples.

    Viewers parse a small part of the standard: a type is one name, and a list's items are scalar.
    """
    whole = {"type": "integer", "minimum": 0}
    properties: dict[str, Any] = {
        "timestamp": {"type": "object", "properties": {"sec": whole, "nsec": whole}},
        "seq": {"type": "number", "description": "number of the sample in its epoch"},
    }
    if spec.device_clock:
        properties["t_dev"] = {"type": "number", "description": "the device's own time [ns]"}
    for channel in channels:
        unit = f" [{channel.unit}]" if channel.unit else ""
        about = {"description": channel.description + unit}
        number: dict[str, Any] = {"type": "number"}
        kind = {"type": "array", "items": number} if channel.shape else number
        properties[channel.name] = kind | about
    schema = {"type": "object", "title": f"recorder.{spec.name}", "properties": properties}
    return json.dumps(schema).encode()
