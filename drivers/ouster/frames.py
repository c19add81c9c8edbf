"""The parts around ouster-sdk's decoding: assembly of packets in order, channels of frames.

- `Assembly` feeds packets to ouster-sdk's batcher and returns complete sweeps and other items in
  order of time.
- `stream_specs` and `channel_arrays` map a frame's fields to roverd's channels: ranges are u2
  millimetres that saturate, with the remainder in a separate channel.

ouster-sdk is passed as an argument, because it is heavy and only imported when a source is opened.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError

T = TypeVar("T")

SILENCE_NS: Final = 500_000_000
"""After this time without a lidar packet, the present sweep is considered ended."""

RANGE_LIMIT_MM: Final = 0xFFFF
"""Saturation value of the u2 ranges in roverd's layout."""

_ROVERD_KEYS: Final[Mapping[str, Sequence[str]]] = {
    "lidar_data_format": ("pixels_per_column", "columns_per_frame", "pixel_shift_by_row"),
    "beam_intrinsics": (
        "beam_altitude_angles",
        "beam_azimuth_angles",
        "beam_to_lidar_transform",
    ),
    "lidar_intrinsics": ("lidar_to_sensor_transform",),
}
"""Sections and keys that roverd's transforms read (roverd 0.3.5, transforms/ouster.py)."""

Fields = Mapping[str, tuple[str, tuple[int, ...]]]
"""ouster-sdk's fields: dtype, such as ``u4``, and dimensions after [beams, columns]."""


@dataclass(frozen=True, slots=True)
class _Layout:
    channel: str
    dtype: str
    rest: str  # channel for the part beyond the dtype's range; "": none
    unit: str
    description: str


LAYOUT: Final[Mapping[str, _Layout]] = {
    "RANGE": _Layout("rng", "u2", "rng_far", "mm", "range, first return"),
    "REFLECTIVITY": _Layout("rfl", "u1", "", "", "calibrated reflectivity, first return"),
    "NEAR_IR": _Layout("nir", "u2", "", "", "near infrared ambient photons"),
    "RANGE2": _Layout("rng2", "u2", "rng2_far", "mm", "range, second return"),
    "REFLECTIVITY2": _Layout("rfl2", "u1", "", "", "calibrated reflectivity, second return"),
}
"""ouster-sdk's fields that are always recorded, and their channels."""


def channel_specs(
    fields: Fields,
    beams: int,
    columns: int,
    compression: str,
    extra: Iterable[str] = (),
) -> tuple[ChannelSpec, ...]:
    """Return the channels of a lidar stream.

    Args:
        fields: the available fields of ouster-sdk.
        beams, columns: shape of a sweep, staggered: as measured, one column per instant.
        compression: roverd's format of the image channels.
        extra: further fields of ouster-sdk to record, under their names in lower case.

    ``nir`` is always present, as zeros where the sensor does not send it (profiles RNG15_RFL8_WIN8
    and RNG19_RFL8_SIG16_ZONE16_DUAL), because roverd's typed reader requires it.
    """
    shape = (beams, columns)
    specs = []
    for name, to in LAYOUT.items():
        if name not in fields and name != "NEAR_IR":
            continue
        note = "" if name in fields else "; not sent in this profile, all zero"
        ranges = bool(to.rest)
        specs.append(
            ChannelSpec(
                to.channel,
                compression,
                to.dtype,
                shape,
                to.description + (f", saturates at {RANGE_LIMIT_MM}" if ranges else "") + note,
                to.unit,
                delta=ranges,
            )
        )
        if ranges:
            text = f"{to.description} minus {to.channel}: what exceeds {RANGE_LIMIT_MM} mm"
            specs.append(ChannelSpec(to.rest, compression, "u4", shape, text, to.unit))
    for name in extra:
        dtype, further = fields[name]
        text = f"ouster-sdk's field {name}"
        specs.append(ChannelSpec(name.lower(), compression, dtype, shape + further, text))
    text = "device time of each column; 0 where the column is missing"
    return (*specs, ChannelSpec("t_col", "raw", "u8", (columns,), text, "ns", device_time=True))


def channel_arrays(
    field: Callable[[str], npt.NDArray[Any]],
    names: Iterable[str],
    shape: tuple[int, int],
    extra: Iterable[str] = (),
) -> dict[str, npt.NDArray[Any]]:
    """Convert one frame's fields to channel arrays [1, beams, columns], without `t_col`.

    Arrays that already have their channel's dtype are views of the frame's memory.

    Args:
        field: returns a field [beams, columns] by ouster-sdk's name.
        names: the available fields.
        shape: (beams, columns).
        extra: as in `channel_specs`.

    Raises:
        FormatError: a value exceeds its channel's range (old OSF files have wider fields).
    """
    present = frozenset(names)
    data: dict[str, npt.NDArray[Any]] = {}
    for name, to in LAYOUT.items():
        if name in present:
            values = field(name)
            if to.rest:
                data[to.channel], data[to.rest] = (a[None] for a in split_range(values))
            else:
                data[to.channel] = _narrow(name, values, to.dtype)[None]
        elif name == "NEAR_IR":
            data[to.channel] = np.zeros((1, *shape), "<" + to.dtype)
    for name in extra:
        data[name.lower()] = field(name)[None]
    return data


def split_range(
    ranges_mm: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint32]]:
    """Split ranges in mm into u2, saturating at 65535, and a u4 remainder; their sum is exact."""
    near = np.minimum(ranges_mm, RANGE_LIMIT_MM).astype("<u2")
    return near, np.subtract(ranges_mm, near, dtype="<u4", casting="unsafe")


def _narrow(name: str, values: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    target = np.dtype("<" + dtype)
    if values.dtype == target:
        return values
    if values.dtype.itemsize > target.itemsize and values.size:
        largest = int(values.max())
        if largest > np.iinfo(target).max:
            raise FormatError(f"{name} holds {largest}, which does not fit into {dtype}")
    return values.astype(target)


def stream_specs(
    name: str,
    info: Any,
    metadata: str,
    fields: Fields,
    *,
    compression: str,
    extra: Sequence[str],
    imu: bool,
    finite: bool,
    settings: Mapping[str, Any] | None = None,
    bytes_per_sample: int | None = None,
) -> list[StreamSpec]:
    """Return the stream NAME, if there are lidar fields, and NAME_imu, if `imu` is true.

    Args:
        name: the sensor's name.
        info: ouster-sdk's SensorInfo.
        metadata: the text of the sensor's metadata, "" if unknown.
        fields, compression, extra: as in `channel_specs`.
        imu: declare the built-in IMU.
        finite: the source has an end.
        settings: further settings of NAME.
        bytes_per_sample: expected encoded bytes of a sweep; None: as measured on real sweeps.
    """
    data_format, specs = info.format, []
    own = {
        "product": str(info.prod_line),
        "serial": str(info.sn),
        "firmware": str(info.fw_rev),
        "lidar_profile": data_format.udp_profile_lidar.name,
        "imu_profile": data_format.udp_profile_imu.name,
        "beams": int(info.h),
        "columns": int(info.w),
        "column_window": [int(n) for n in data_format.column_window],
    }
    if fields:
        channels = channel_specs(fields, int(info.h), int(info.w), compression, extra)
        size = bytes_per_sample or sum(c.sample_bytes for c in channels)
        if compression != "raw" and bytes_per_sample is None:
            per_point = 3.6 + 2.4 * ("RANGE2" in fields) + len(extra)  # measured on real sweeps
            size = min(size, round(info.h * info.w * per_point) + 8 * int(info.w))
        specs.append(
            StreamSpec(
                name,
                channels,
                rate_hz=float(data_format.fps) or None,
                device_clock=True,
                bytes_per_sample=size,
                finite=finite,
                description=f"Ouster {info.prod_line}, one sample a sweep, staggered",
                files={"lidar.json": convert_metadata(info, metadata)},
                settings=own | dict(settings or {}),
            )
        )
    if imu:
        specs.append(
            StreamSpec(
                name + "_imu",
                (
                    ChannelSpec("acc", "raw", "f4", (3,), "acceleration, IMU axes", "m/s^2"),
                    ChannelSpec("avel", "raw", "f4", (3,), "rate of turn, IMU axes", "rad/s"),
                ),
                rate_hz=imu_rate_hz(info) or None,
                device_clock=True,
                bytes_per_sample=24,
                finite=finite,
                description=f"IMU inside {name}",
                settings=own,
            )
        )
    return specs


def imu_rate_hz(info: Any) -> float | None:
    """Return the nominal rate of the built-in IMU; None where the sensor does not send it."""
    match info.format.udp_profile_imu.name:
        case "LEGACY":
            return 100.0
        case "ACCEL32_GYRO32_NMEA":
            per_packet = info.format.imu_measurements_per_packet
            return float(per_packet * info.format.imu_packets_per_frame * info.format.fps)
        case _:
            return None


def convert_metadata(info: Any, metadata: str) -> str:
    """Return the metadata in a form that roverd's transforms can read; unchanged where they can.

    The flat form of older firmware lacks sections that roverd requires: it becomes the present
    form.  The sections of firmware 2.0 to 2.4 lack ``beam_to_lidar_transform``: they get what is
    missing, and keep everything else.
    """
    document = json.loads(metadata) if metadata else {}
    present = str(info.to_json_string())
    if not all(isinstance(document.get(section), dict) for section in _ROVERD_KEYS):
        return present
    complete, sections = True, json.loads(present)
    for section, keys in _ROVERD_KEYS.items():
        for key in keys:
            if document[section].get(key) is None:
                document[section][key], complete = sections[section][key], False
    return metadata if complete else json.dumps(document, indent=4)


def packet_fields(core: Any, info: Any) -> Fields:
    """Return the fields that a packet format can decode, with ouster-sdk's types where it has any.

    For the profile FIVE_WORD_PIXEL, ouster-sdk decodes raw words by default; the ranges can be
    decoded too.
    """
    usual = {t.name: (np.dtype(t.element_type), t.extra_dims) for t in core.get_field_types(info)}
    fields = {}
    layout = core.PacketFormat(info)
    for name in layout.fields:
        bits = int(layout.field_bitness(name))
        if name in usual:
            dtype, further = usual[name]
        elif name in ("R", "G", "B"):
            continue  # parts of RGB
        else:
            size = 4 if name.startswith("RANGE") else 1 << max(0, (bits - 1).bit_length() - 3)
            dtype, further = np.dtype(f"u{size}"), ()
        fields[str(name)] = (f"{dtype.kind}{dtype.itemsize}", tuple(map(int, further)))
    return fields


def frame_fields(core: Any, frame: Any) -> Fields:
    """Return the image fields of a decoded frame."""
    return {
        str(t.name): (np.dtype(t.element_type).str[1:], tuple(map(int, t.extra_dims)))
        for t in frame.field_types
        if t.field_class == core.FieldClass.PIXEL_FIELD
    }


class Assembly(Generic[T]):
    """Assembler of packets to sweeps, which returns items in order of time.

    A sweep's stamp is the stamp of its last packet, and a sweep without its end is only detected
    when packets of the next sweep arrive.  IMU samples are therefore held until it is known whether
    the sweep continues after them.  ouster-sdk's batcher caches a few packets of the next sweep
    meanwhile and drops them at the end of a file; this class keeps them.

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo.
        fields: the fields to decode.
        sweep: makes items of a frame, complete or not, and its stamp.
        restarted: makes items of the stamp and initialization id of a restart of the sensor, which
            restarts the count of its frames.

    Attributes:
        at_last: `finish` returns the last sweep of which a packet has come.
    """

    def __init__(
        self,
        core: Any,
        info: Any,
        fields: Fields,
        sweep: Callable[[Any, int], Iterable[T]],
        restarted: Callable[[int, int], Iterable[T]],
    ) -> None:
        self._core, self._info = core, info
        self._sweep, self._restarted = sweep, restarted
        self._types = [core.FieldType(n, np.dtype(d), more) for n, (d, more) in fields.items()]
        self._per_sweep = int(self._info.format.lidar_packets_per_frame())
        self._legacy = self._info.format.udp_profile_lidar.name == "LEGACY"
        self._init_id = int(self._info.init_id)
        self._id_span = int(core.PacketFormat(info).max_frame_id) + 1
        self._held: list[tuple[int, T]] = []
        self._lidar_ns = 0
        self.at_last = False
        self._begin()

    def _begin(self) -> None:
        self._batcher = self._core.FrameBatcher(self._info)
        self._frame = self._core.LidarFrame(self._info, self._types)
        self._dropped = 0
        self._ahead: list[Any] = []  # in the batcher's cache
        self._behind: list[Any] = []  # dropped by the batcher as packets of an ended sweep

    def hold(self, item: T, t_ns: int) -> Iterator[T]:
        """Hold an item with the stamp `t_ns`; return it in its turn."""
        self._held.append((t_ns, item))
        if not (self._batcher.batched_packets() or self._ahead or self._behind):
            yield from self._release()
        elif t_ns - self._lidar_ns > SILENCE_NS:
            yield from self.finish()

    def take(self, packet: Any) -> Iterator[T]:
        """Process a packet of a sweep."""
        lidar, t_ns = isinstance(packet, self._core.LidarPacket), int(packet.host_timestamp)
        if lidar:
            self._lidar_ns = t_ns
        frame = self._frame
        restart = not self._legacy and int(packet.init_id()) != self._init_id
        if restart:
            self._init_id = int(packet.init_id())
        # The packet that completes a sweep may be of the next one, which the batcher caches.
        if self._batcher.batch(packet, frame):
            finished = int(frame.frame_id)
            yield from self._emit(frame)
            self._frame = self._core.LidarFrame(self._info, self._types)
            self._behind.clear()
            self._ahead.append(packet)
            if restart:  # the batcher has cleared its cache except for this packet
                self._ahead = [packet]
            else:
                self._keep_later(finished)
            if not self._ahead:
                yield from self._release(t_ns)
        elif packet.frame_id() == frame.frame_id and self._batcher.batched_packets():
            self._behind.clear()
            self._keep_later(int(frame.frame_id))
            if lidar:
                yield from self._release(t_ns)
        elif (dropped := self._batcher.dropped_packets()) > self._dropped:
            # The batcher drops packets of ended sweeps; more than a sweep of them mean a restart.
            self._dropped = dropped
            self._behind.append(packet)
            if len(self._behind) > self._per_sweep:
                yield from self._restart()
        else:
            self._ahead.append(packet)
            self._keep_later(int(frame.frame_id))
        if restart:
            yield from self._release(t_ns)  # items from before the restart
            yield from self._restarted(t_ns, self._init_id)

    def _restart(self) -> Iterator[T]:
        """Handle a restart of the sensor: its frame ids have stayed behind for a whole sweep."""
        behind, self._behind = self._behind, []
        t_ns, held = int(behind[0].host_timestamp), self._held
        self._held = [one for one in held if one[0] <= t_ns]
        yield from self.finish()
        self._held = [one for one in held if one[0] > t_ns]
        yield from self._restarted(t_ns, self._init_id)
        for packet in behind:
            yield from self.take(packet)

    def finish(self) -> Iterator[T]:
        """Return everything, complete or not."""
        ahead = self._ahead
        self.at_last = not ahead
        if self._batcher.batched_packets():
            yield from self._emit(self._frame)
        while ahead:
            self._begin()
            first = ahead[0].frame_id()
            for packet in ahead:
                if packet.frame_id() == first:
                    self._batcher.batch(packet, self._frame)
            ahead = [packet for packet in ahead if packet.frame_id() != first]
            self.at_last = not ahead
            yield from self._emit(self._frame)
        self.at_last = False
        self._begin()
        yield from self._release()

    def give_up(self) -> Iterator[T]:
        """Discard the present sweep, a packet of which is undecodable; return the held items."""
        self._begin()
        yield from self._release()

    def _emit(self, frame: Any) -> Iterator[T]:
        t_ns = int(frame.packet_timestamp.max())
        if not t_ns:
            return  # only IMU packets: no sweep, and no loss
        yield from self._release(t_ns)
        yield from self._sweep(frame, t_ns)

    def _release(self, until_ns: float = math.inf) -> Iterator[T]:
        """Return the held items with stamps up to `until_ns`."""
        held = self._held
        self._held = [one for one in held if one[0] > until_ns]
        yield from [item for t_ns, item in held if t_ns <= until_ns]

    def _keep_later(self, frame_id: int) -> None:
        if self._ahead:
            half, span = self._id_span // 2, self._id_span
            ahead = ((packet, (packet.frame_id() - frame_id) % span) for packet in self._ahead)
            self._ahead = [packet for packet, distance in ahead if 0 < distance <= half]
