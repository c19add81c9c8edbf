"""Topics of a lidar for Foxglove: points, and the images of a sweep."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy.typing as npt
from foxglove.messages import RawImage

from recorder.archives.context import PackingContext
from recorder.archives.mcap.topics import Topic
from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.formats.mcap import Schema
from recorder.perception.foxglove.channels import (
    Encoded,
    EncodeSamples,
    schema_of,
    times_ns,
)
from recorder.perception.foxglove.clouds import POINT_CLOUD, cloud, lidar_channel
from recorder.perception.foxglove.pictures import raw_image
from recorder.perception.frames import cloud_channel
from recorder.perception.lidar.clouds import make_range_source
from recorder.session.stream import Stream

NEAR_IR: Final = "nir"
COLUMN_TIMES: Final = "t_col"

Sweep = dict[str, npt.NDArray[Any]]
Image = Callable[[Sweep], npt.NDArray[Any]]


def topics(
    context: PackingContext, stream: Stream, spec: StreamSpec
) -> tuple[list[tuple[Topic, EncodeSamples]], set[str]]:
    """Return the topics of a lidar's sweeps, and the channels that they contain.

    - ``/NAME/points``: see `recorder.perception.foxglove.clouds.lidar_channel`;
    - ``/NAME/range``, ``/NAME/range2``: images ``32FC1`` of the ranges in m, 0 without a return.
      An Ouster's range of whole millimetres is exact: ``rint(1000 * value)``;
    - ``/NAME/reflectivity``, ``/NAME/reflectivity2``, ``/NAME/confidence``, ...,
      ``/NAME/near_ir``: images ``mono8``, ``mono16``;
    - ``/NAME/columns``: the sensor's time of each column, as recorded.

    The images of other lidars than an Ouster are staggered: a column is of one time.  A lidar whose
    points are recorded has ``/NAME/points`` alone, with all columns.

    Raises:
        FormatError: ``lidar.json`` is missing or wrong, or does not fit the sweeps.
    """
    wanted = context.options["lidar"]
    if (channel := cloud_channel(spec)) is not None:
        return _cloud_topics(context, spec, wanted), {channel}
    sweeps = make_range_source(spec, destaggered=context.options["points"] == "destaggered")
    names = {channel.name for channel in spec.channels}
    images: dict[str, Image] = {}
    shown: dict[str, str] = {}
    if wanted in ("ranges", "points_and_ranges"):
        for number in range(sweeps.returns):
            suffix = "" if not number else str(number + 1)
            images[f"range{suffix}"] = lambda sweep, n=number: sweeps.ranges_m(sweep, n)  # type: ignore[misc]
            for name, channel in (("reflectivity", "rfl"), ("confidence", "conf")):
                if f"{channel}{suffix}" in names:
                    shown[f"{name}{suffix}"] = f"{channel}{suffix}"
        if NEAR_IR in names:
            shown["near_ir"] = NEAR_IR
        images |= {name: lambda sweep, c=channel: sweep[c] for name, channel in shown.items()}  # type: ignore[misc]
    used = set(sweeps.channels) if wanted != "none" else set()
    used |= set(shown.values())
    needed = sorted(used)

    def read_sweep(message: Message) -> Sweep:
        return stream.sample(message.number, needed)

    def encode_points(message: Message, offset_ns: int) -> Encoded:
        t_ns = times_ns(message, offset_ns)[-1]
        begin_ns, points = sweeps.points(read_sweep(message), t_ns)
        return [(t_ns, cloud(begin_ns, spec.name, points))]

    def encode_image(image: Image) -> EncodeSamples:
        def encode(message: Message, offset_ns: int) -> Encoded:
            t_ns, sweep = times_ns(message, offset_ns)[-1], read_sweep(message)
            values = sweeps.image(image(sweep))
            return [(t_ns, raw_image(sweeps.start_ns(sweep, t_ns), spec.name, values))]

        return encode

    def encode_columns(message: Message, offset_ns: int) -> Encoded:
        t_ns, sweep = times_ns(message, offset_ns)[-1], read_sweep(message)
        values = {"timestamp": _json_time(t_ns), COLUMN_TIMES: sweep[COLUMN_TIMES].tolist()}
        return [(t_ns, [json.dumps(values).encode()])]

    made: list[tuple[Topic, EncodeSamples]] = []
    order, raw = {"order": context.options["points"]}, schema_of(RawImage)
    if wanted in ("points", "points_and_ranges"):
        made.append((Topic(f"/{spec.name}/points", POINT_CLOUD, metadata=order), encode_points))
    for name, image in images.items():
        made.append((Topic(f"/{spec.name}/{name}", raw, metadata=order), encode_image(image)))
    if images and COLUMN_TIMES in names:
        made.append((Topic(f"/{spec.name}/columns", _COLUMNS), encode_columns))
    return made, used


def _cloud_topics(
    context: PackingContext, spec: StreamSpec, wanted: str
) -> list[tuple[Topic, EncodeSamples]]:
    """Return the topic of recorded points; note images that are asked for."""
    if wanted.endswith("ranges"):
        context.notes.add("its lidar records points: no images", spec.name)
    if not wanted.startswith("points"):
        return []
    channel = lidar_channel(spec)
    return [(Topic(channel.topic, channel.schema), channel.encode)]


def _json_time(t_ns: int) -> dict[str, int]:
    return {"sec": t_ns // 1_000_000_000, "nsec": t_ns % 1_000_000_000}


_WHOLE: Final = {"type": "integer", "minimum": 0}
_COLUMNS: Final = Schema(
    "recorder.Columns",
    "jsonschema",
    json.dumps(
        {
            "type": "object",
            "title": "recorder.Columns",
            "properties": {
                "timestamp": {"type": "object", "properties": {"sec": _WHOLE, "nsec": _WHOLE}},
                COLUMN_TIMES: {
                    "type": "array",
                    "items": {"type": "number"},
                    "description": "the sensor's time of each column [ns], 0 if it is missing",
                },
            },
        }
    ).encode(),
)
