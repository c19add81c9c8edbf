"""The bytes of a simulated MTi: MTData2 messages of the simulated IMU's measurements.

The `sim:` source parses them in the driver; the emulated device sends them through a pty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from drivers.kit.satellite_navigation import earth_fixed, geodetic
from drivers.world.imu import BOOT_NS, TICK_NS, Floats, ImuSamples, SimulatedImu, Times, angles
from drivers.world.mounts import rotate, rotate_back
from drivers.xsens.commands import PVT_HZ, Output, Outputs
from drivers.xsens.device_types import MODELS, Model
from drivers.xsens.mtdata2 import Coordinates, MtData2, encode_mtdata2
from drivers.xsens.packets import MID_MTDATA2, encode_message
from drivers.xsens.positions import Pvt

ORIGIN: Final = (48.2, 11.5, 480.0)
"""Latitude and longitude in degrees, height above the ellipsoid in m, of the world's origin."""

LATENCY_NS: Final = 45_000_000
"""Time from a position of the receiver to its message; that of a real MTi-G-710."""

_PERIOD_NS = 1_000_000_000 // PVT_HZ
_START = datetime(2024, 6, 1, 12, tzinfo=UTC)
_VALID = 0x37  # date, time, fully resolved; as a real receiver sends it
_GEOID_MM = 45_000


def utc_time(t_ns: int) -> tuple[int, ...]:
    """Return UtcTime (0x1010) of a world time: ns, year, month, day, h, min, s, valid flags."""
    seconds, nanosecond = divmod(t_ns, 1_000_000_000)
    t = _START + timedelta(seconds=seconds)
    return nanosecond, t.year, t.month, t.day, t.hour, t.minute, t.second, _VALID


def positions(imu: SimulatedImu, t_ns: Times) -> tuple[Floats, Floats, Floats]:
    """Return ECEF in m, (latitude, longitude, height), and velocity east, north, up in m/s."""
    enu_m, velocity = imu.place(t_ns / 1e9)
    points = earth_fixed(enu_m, ORIGIN)
    return points, np.array([geodetic(tuple(p)) for p in points.tolist()]), velocity


def receiver_times(first_ns: int, last_ns: int) -> range:
    """Return the world times of the receiver's positions sent after `first_ns`, until `last_ns`."""
    start, stop = (max(0, -(-(t - LATENCY_NS) // _PERIOD_NS)) for t in (first_ns, last_ns))
    return range(start * _PERIOD_NS, stop * _PERIOD_NS, _PERIOD_NS)


def receiver_data(imu: SimulatedImu, t_ns: int) -> Pvt:
    """Return the receiver's data at a world time."""
    _, ((latitude, longitude, height),), ((east, north, up),) = positions(imu, np.array([t_ns]))
    nanosecond, *date, valid = utc_time(t_ns)
    speed = math.hypot(east, north)
    heading = math.degrees(math.atan2(east, north)) % 360
    return Pvt._make(
        round(number)
        for number in (
            (t_ns // 1_000_000 + 561_600_000) % 604_800_000,  # that Saturday's noon, without leaps
            *date, valid, 20, nanosecond, 3, 1, 12, 0,
            longitude * 1e7, latitude * 1e7, height * 1e3, height * 1e3 - _GEOID_MM, 20, 30,
            north * 1e3, east * 1e3, -up * 1e3, speed * 1e3, heading * 1e5, 50, 100_000, 0,
            150, 130, 70, 110, 80, 55, 60,
        )
    )  # fmt: skip


_PVT = 0x7010
_NEW_MODELS = MODELS["MTi-680G"].most_hz
_MOST_HZ = {**_NEW_MODELS, **MODELS["MTi-300"].most_hz}

_LOCAL: dict[Coordinates, Floats] = {
    Coordinates.ENU: np.eye(3),
    Coordinates.NED: np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]),
    Coordinates.NWU: np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
}
"""Rotation from world axes (east, north, up) to each local frame."""
_FIELD_ENU = np.array([0.0, 0.4, -0.9165151389911680])  # of length 1, dipping by 66 degrees
_GRAVITY = np.array([0.0, 0.0, 9.80665])
_DEGREES = 57.29577951308232
_SCALE = 1 << 32


class ImuPackets:
    """Messages of a simulated IMU with an output configuration.

    Usage::

        packets = ImuPackets(SimulatedImu(100.0), make_outputs(100, ["euler_angles"]))
        stream = b"".join(packets.messages(0, 1000))

    Args:
        imu: sample k makes message k.
        outputs: in the order within each message.  An output with a lower rate is contained in
            every second, third, ... message.  GnssPvtData comes in messages of its own.
        model: type of the device.

    Attributes:
        outputs: with their actual rates.
    """

    def __init__(
        self, imu: SimulatedImu, outputs: Outputs, model: Model = MODELS["MTi-300"]
    ) -> None:
        self.imu = imu
        self._status = model.status
        self._has_receiver = any(o.data_type == _PVT for o in outputs)
        self._stamps = tuple(o.data_id for o in outputs if o.data_type in (0x1010, 0x1020, 0x1060))
        self._outputs = [
            (o.data_id, divider(imu.rate_hz, o)) for o in outputs if o.data_type != _PVT
        ]
        every = dict(self._outputs)
        self.outputs: Outputs = tuple(
            o._replace(rate_hz=round(imu.rate_hz / every[o.data_id]))
            if not o.comes_always and o.data_type != _PVT
            else o
            for o in outputs
        )

    def groups(self, first: int, count: int) -> list[list[MtData2]]:
        """Return each sample's message with the receiver's messages that follow it.

        Packet counter and clock are those of a device that has counted all messages from sample 0
        on without a restart.
        """
        batch = self.imu.samples(first, count)
        columns = {data_id: _column(data_id, batch, self.imu) for data_id, _ in self._outputs}
        t_ns = self.imu.stamps(0, 1)[0][:1]
        t_ns = np.concatenate([t_ns, batch.t_ns, self.imu.stamps(first + count, 1)[0]]).tolist()
        counter = first
        if self._has_receiver:
            counter += len(receiver_times(t_ns[0], t_ns[1]))
        made = []
        for k in range(count):
            ids = tuple(i for i, every in self._outputs if (first + k) % every == 0)
            message = MtData2(
                packet_counter=counter & 0xFFFF,
                sample_time_fine=int(batch.t_dev_ns[k]) // TICK_NS % _SCALE,
                status_word=self._status,
                status_byte=self._status,
                data_ids=ids,
            )
            for data_id in ids:
                name, values = columns[data_id]
                if name:
                    setattr(message, name, values[k])
            group = [message]
            if self._has_receiver:
                for at_ns in receiver_times(t_ns[k + 1], t_ns[k + 2]):
                    group.append(self._make_received(at_ns, counter + len(group)))
            counter += len(group)
            made.append(group)
        return made

    def _make_received(self, t_ns: int, counter: int) -> MtData2:
        """Return the receiver's message about a world time."""
        return MtData2(
            packet_counter=counter & 0xFFFF,
            sample_time_fine=(t_ns + BOOT_NS) // TICK_NS % _SCALE,
            utc_time=utc_time(t_ns),
            gnss_pvt=tuple(receiver_data(self.imu, t_ns)),
            data_ids=(_PVT, *reversed(self._stamps)),
        )

    def values(self, first: int, count: int) -> list[MtData2]:
        """Return the messages of samples `first` to `first + count - 1`, as `groups`."""
        return [message for group in self.groups(first, count) for message in group]

    def messages(self, first: int, count: int) -> list[bytes]:
        """Return the same messages as whole Xbus messages."""
        return [encode(values) for values in self.values(first, count)]


def encode(values: MtData2) -> bytes:
    """Encode a whole MTData2 message."""
    return encode_message(MID_MTDATA2, encode_mtdata2(values))


def divider(rate_hz: float, output: Output) -> int:
    """Return N for an output in every Nth message of a device that sends `rate_hz` messages."""
    if output.comes_always:
        return 1
    most_hz = _MOST_HZ[output.data_type]
    return max(1, math.ceil(rate_hz / most_hz - 1e-9), round(rate_hz / max(1, output.rate_hz)))


def accept_outputs(wanted: Sequence[Output], model: Model = MODELS["MTi-300"]) -> Outputs | None:
    """Return the outputs that the device accepts for a wanted configuration; None if it rejects it.

    The fastest output's rate is rounded down to a divisor of 2000 Hz; the other rates become
    fractions of it.  A rate of 0 or 0xFFFF requests the highest rate.
    """
    most_hz = model.most_hz
    rates = [
        min(o.rate_hz or 0xFFFF, most_hz[o.data_type]) for o in wanted if o.data_type in most_hz
    ]
    known = {*most_hz, *model.stamps, *([_PVT] if model.pvt_hz else [])}
    if not known.issuperset(o.data_type for o in wanted):
        return None
    if any(o.comes_always and o.data_id != o.data_type for o in wanted):
        return None  # what comes with every message has neither encoding nor coordinates
    rate_hz = max((r for r in range(1, max(rates, default=1) + 1) if 2000 % r == 0), default=1)
    taken = []
    for o in wanted:
        if o.comes_always:
            taken.append(Output(o.data_id))
        elif o.data_type == _PVT:
            taken.append(Output(o.data_id, model.pvt_hz))
        else:
            asked = o._replace(rate_hz=min(o.rate_hz or 0xFFFF, most_hz[o.data_type]))
            taken.append(Output(o.data_id, round(rate_hz / divider(rate_hz, asked))))
    return tuple(taken)


def _column(data_id: int, batch: ImuSamples, imu: SimulatedImu) -> tuple[str, list[Any]]:
    """Return (field of `MtData2`, its values) of one output; an empty name for stamps."""
    local = _LOCAL.get(Coordinates(data_id & 0xC), _LOCAL[Coordinates.ENU])
    match data_id & 0xFFF0:
        case 0x2010:
            name, values = "quaternion", quaternions(_in_frame(local, batch.rotation))
        case 0x2020:
            columns = np.swapaxes(_in_frame(local, batch.rotation), 1, 2)
            name, values = "rotation_matrix", columns.reshape(-1, 9)
        case 0x2030:
            name, values = "euler_angles", angles(_in_frame(local, batch.rotation)) * _DEGREES
        case 0x4020:
            name, values = "acceleration", batch.acc.astype(np.float64)
        case 0x4030:
            force = rotate(batch.rotation, batch.acc.astype(np.float64)) - _GRAVITY
            name, values = "free_acceleration", rotate(local, force)
        case 0x8020:
            name, values = "rate_of_turn", batch.avel.astype(np.float64)
        case 0xC020:
            name, values = "magnetic_field", rotate_back(batch.rotation, _FIELD_ENU)
        case 0x1010:
            return "utc_time", [utc_time(t_ns) for t_ns in batch.t_ns.tolist()]
        case 0x5020:
            return "altitude_ellipsoid", positions(imu, batch.t_ns)[1][:, 2].tolist()
        case 0x5030:
            name, values = "position_ecef", positions(imu, batch.t_ns)[0]
        case 0x5040:
            name, values = "latitude_longitude", positions(imu, batch.t_ns)[1][:, :2]
        case 0xD010:
            name, values = "velocity", rotate(local, positions(imu, batch.t_ns)[2])
        case _:
            return "", []
    return name, [tuple(row) for row in values.tolist()]


def _in_frame(local: Floats, rotation: Floats) -> Floats:
    return np.asarray(local @ rotation)


def quaternions(rotation: Floats) -> Floats:
    """Return unit quaternions [n, 4], real part first and not negative, of rotations [n, 3, 3]."""
    r = rotation
    xx, yy, zz = r[:, 0, 0], r[:, 1, 1], r[:, 2, 2]
    # Four equivalent formulas; each row uses the formula that divides by the largest number.
    squares = np.stack([1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz])
    best = squares.argmax(axis=0)
    x, y, z = (r[:, i, j] - r[:, j, i] for i, j in ((2, 1), (0, 2), (1, 0)))
    xy, xz, yz = (r[:, i, j] + r[:, j, i] for i, j in ((0, 1), (0, 2), (1, 2)))
    ways = [
        (squares[0], x, y, z),
        (x, squares[1], xy, xz),
        (y, xy, squares[2], yz),
        (z, xz, yz, squares[3]),
    ]
    made = np.zeros((len(r), 4))
    for way, parts in enumerate(ways):
        chosen = best == way
        scale = 0.5 / np.sqrt(squares[way][chosen])
        for k, part in enumerate(parts):
            made[chosen, k] = part[chosen] * scale
    return np.where(made[:, :1] < 0, -made, made)
