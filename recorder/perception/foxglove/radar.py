"""Topics of radars: detections as PointCloud, and maps as RawImage."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from foxglove.messages import PointCloud, RawImage

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.perception.encoded import EncodedSamples
from recorder.perception.foxglove.channels import Encoded, Parts, SampleChannel, schema_of, times_ns
from recorder.perception.foxglove.clouds import MOST_HZ, cloud
from recorder.perception.foxglove.pictures import raw_image
from recorder.perception.radar.detections import detection_points
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.maps import RadarMaps, in_db_steps
from recorder.perception.radar.radar import RadarProcessor
from recorder.perception.radar.spectra import Complex64, Float32

LEAST_DB: Final = -10.0
"""Level above the map's noise that is black, dB."""
STEP_DB: Final = 0.25
"""Difference between two levels of grey, dB."""
_MAP_HZ: Final = 5.0
_METADATA: Final = "radar.json"

EncodeSpectra = Callable[[int, Complex64], Parts]


def radar_channels(spec: StreamSpec) -> list[SampleChannel]:
    """Return the topics ``/NAME/detections``, ``/NAME/range_doppler`` and ``/NAME/range_azimuth``.

    The speeds of detections are those of one frame: where ``method`` is 0, a speed may be off by a
    multiple of twice the unambiguous speed.  A map is a picture ``mono8``: a column for each range,
    from near to far; a row for each speed or azimuth, rising from the top to the bottom; a pixel is
    ``(dB above the map's noise - LEAST_DB) / STEP_DB``.  Without antennas in ``radar.json`` there
    is no map over azimuths.

    Raises:
        FormatError: ``radar.json`` is missing or wrong.
    """
    where = f"{spec.name}: {_METADATA}"
    shape = spec.channel("iq").shape
    geometry = RadarGeometry.of_metadata(spec.files.get(_METADATA, ""), where, shape)
    processor, maps = RadarProcessor(geometry), RadarMaps(geometry)
    frames = _Frames(spec, processor)

    def detections(t_ns: int, spectra: Complex64) -> Parts:
        return cloud(t_ns, spec.name, detection_points(processor.find(spectra)))

    def map_of(draw: Callable[[Complex64], tuple[Float32, float]]) -> EncodeSpectra:
        return lambda t_ns, spectra: map_image(t_ns, spec.name, draw(spectra)[0])

    def channel(name: str, schema: Any, encode: EncodeSpectra, most_hz: float) -> SampleChannel:
        return SampleChannel(
            f"/{spec.name}/{name}",
            schema_of(schema),
            spec.name,
            lambda message, offset_ns: frames.encode(message, offset_ns, encode),
            most_hz=most_hz,
        )

    channels = [
        channel("detections", PointCloud, detections, MOST_HZ),
        channel("range_doppler", RawImage, map_of(maps.range_doppler), _MAP_HZ),
    ]
    if len(maps.azimuth_rad):
        channels.append(channel("range_azimuth", RawImage, map_of(maps.range_azimuth), _MAP_HZ))
    return channels


class _Frames:
    """The spectra of the newest frame, computed once for all channels."""

    def __init__(self, spec: StreamSpec, processor: RadarProcessor) -> None:
        self._samples = EncodedSamples(spec)
        self._processor = processor
        self._lock = threading.Lock()
        self._last: tuple[Message, Complex64] | None = None

    def encode(self, message: Message, offset_ns: int, encode: EncodeSpectra) -> Encoded:
        t_ns = times_ns(message, offset_ns)[-1]
        return [(t_ns, encode(t_ns, self._compute_spectra(message)))]

    def _compute_spectra(self, message: Message) -> Complex64:
        with self._lock:
            if self._last is None or self._last[0] is not message:
                self._samples.check(message)
                iq = self._samples.decoded(message, "iq")
                self._last = message, self._processor.spectra(iq)
            return self._last[1]


def map_image(t_ns: int, frame: str, level_db: Float32) -> Parts:
    """Encode a RawImage of a map's levels, dB above its noise."""
    return raw_image(t_ns, frame, in_db_steps(level_db, LEAST_DB, STEP_DB))
