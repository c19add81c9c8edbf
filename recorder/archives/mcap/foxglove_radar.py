"""Topics of a radar for Foxglove: detections, maps, and raw IQ."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy.typing as npt
from foxglove.messages import RawImage

from recorder.archives.context import PackingContext
from recorder.archives.mcap.topics import Topic
from recorder.archives.mcap.worker_feeds import RadarPoints
from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.formats.mcap import Schema
from recorder.perception.foxglove.channels import (
    Encoded,
    EncodeSamples,
    Parts,
    schema_of,
    times_ns,
)
from recorder.perception.foxglove.clouds import POINT_CLOUD, cloud
from recorder.perception.foxglove.pictures import raw_image
from recorder.perception.foxglove.radar import LEAST_DB, STEP_DB, map_image
from recorder.perception.radar.frames import speed_facts
from recorder.perception.radar.maps import RadarMaps
from recorder.perception.radar.spectra import Complex64, Float32
from recorder.perception.sensor_files import radar_geometry
from recorder.session.stream import Stream

_IQ: Final = "iq"
_RADAR: Final = "radar.json"
_SIGNED: Final = "16SC1"

Draw = Callable[[Complex64], tuple[Float32, float]]


def topics(
    context: PackingContext, stream: Stream, spec: StreamSpec
) -> tuple[list[tuple[Topic, EncodeSamples]], RadarPoints]:
    """Return the topics of a radar's frames, and the processor that finds the detections.

    - ``/NAME/detections``: PointCloud of `recorder.perception.radar.detections.DETECTION`;
    - ``/NAME/range_doppler``, ``/NAME/range_azimuth``: with the option ``maps``, as in the live
      view;
    - ``/NAME/iq``: with the option ``iq``, RawImage of the recorded values, ``16SC1`` (signed 16
      bits, one channel): a row for each chirp of a frame, transmitter and receiver, in this order.

    Raises:
        FormatError: ``radar.json`` does not fit the samples.
        ConfigError: the antennas' calibration is for another device.
    """
    geometry = radar_geometry(stream, context.calibration)
    if geometry.tx_m is None:
        context.notes.add("radar.json has no antennas: detections lie straight ahead", stream.name)
    radar = RadarPoints(context, stream, geometry)

    def iq(message: Message) -> npt.NDArray[Any]:
        return stream.sample(message.number, [_IQ])[_IQ]

    def detections(message: Message, t_ns: int) -> Parts:
        return cloud(t_ns, spec.name, radar.detect(message.number))

    def raw(message: Message, t_ns: int) -> Parts:
        values = iq(message)
        rows = values.reshape(-1, values.shape[-1])
        return raw_image(t_ns, spec.name, rows, _SIGNED)

    def encode_map(draw: Draw) -> Callable[[Message, int], Parts]:
        return lambda message, t_ns: map_image(
            t_ns, spec.name, draw(processor.spectra(iq(message)))[0]
        )

    processor = radar.frames.processor
    facts = {key: json.dumps(value) for key, value in speed_facts(processor).items()}
    image = schema_of(RawImage)
    made = [_make_topic(spec, "detections", POINT_CLOUD, detections, facts)]
    if context.options["maps"]:
        maps = RadarMaps(geometry)
        grey = {"least_db": str(LEAST_DB), "step_db": str(STEP_DB)}
        made.append(_make_topic(spec, "range_doppler", image, encode_map(maps.range_doppler), grey))
        if len(maps.azimuth_rad):
            made.append(
                _make_topic(spec, "range_azimuth", image, encode_map(maps.range_azimuth), grey)
            )
    if context.options["iq"]:
        chirp = {
            "shape": json.dumps(list(spec.channel(_IQ).shape)),
            "axes": json.dumps(["chirp", "transmitter", "receiver", "value"]),
            "dtype": "<i2",
            "iq_order": json.dumps(geometry.iq_order),
            _RADAR: spec.files.get(_RADAR, ""),
        }
        made.append(_make_topic(spec, "iq", image, raw, chirp))

    return made, radar


def _make_topic(
    spec: StreamSpec,
    name: str,
    schema: Schema,
    make: Callable[[Message, int], Parts],
    metadata: dict[str, str],
) -> tuple[Topic, EncodeSamples]:
    def encode(message: Message, offset_ns: int) -> Encoded:
        t_ns = times_ns(message, offset_ns)[-1]
        return [(t_ns, make(message, t_ns))]

    return Topic(f"/{spec.name}/{name}", schema, metadata=metadata), encode
