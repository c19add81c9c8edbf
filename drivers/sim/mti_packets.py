"""The bytes of a simulated MTi: MTData2 messages of the simulated IMU's measurements.

The `sim:` source parses them in the driver; the emulated device sends them through a pty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from drivers._protocols.mtdata2 import Coordinates, MtData2, encode_mtdata2
from drivers._protocols.xbus import MID_MTDATA2, encode_message
from drivers._protocols.xbus_commands import Output, Outputs
from drivers.sim.imu import TICK_NS, Floats, ImuSamples, SimulatedImu, angles
from drivers.sim.world import portable

MOST_HZ: dict[int, int] = {
    0x2010: 400,
    0x2020: 400,
    0x2030: 400,
    0x4020: 2000,
    0x4030: 400,
    0x8020: 2000,
    0xC020: 100,
}
"""Highest rate of the simulated device's measurements, by data type."""
STAMPS = frozenset({0x1020, 0x1060, 0xE020})
"""Data types of time stamps and status."""

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

        packets = ImuPackets(SimulatedImu(100.0), wanted_outputs(100, ["euler_angles"]))
        stream = b"".join(packets.messages(0, 1000))

    Args:
        imu: sample k makes message k.
        outputs: in the order within each message.  An output with a lower rate is contained in
            every second, third, ... message.

    Attributes:
        outputs: with their actual rates.
    """

    def __init__(self, imu: SimulatedImu, outputs: Outputs) -> None:
        self.imu = imu
        self._outputs = [(o.data_id, divider(imu.rate_hz, o)) for o in outputs]
        self.outputs: Outputs = tuple(
            o if o.comes_always else o._replace(rate_hz=round(imu.rate_hz / every))
            for o, (_, every) in zip(outputs, self._outputs, strict=True)
        )

    def values(self, first: int, count: int) -> list[MtData2]:
        """Return messages `first` to `first + count - 1`; packet counter and clock are those of a
        device that has counted all messages from 0 on without a restart."""
        batch = self.imu.samples(first, count)
        columns = {data_id: _column(data_id, batch) for data_id, _ in self._outputs}
        made = []
        for k in range(count):
            ids = tuple(i for i, every in self._outputs if (first + k) % every == 0)
            message = MtData2(
                packet_counter=(first + k) & 0xFFFF,
                sample_time_fine=int(batch.t_dev_ns[k]) // TICK_NS % _SCALE,
                status_word=0,
                data_ids=ids,
            )
            for data_id in ids:
                name, values = columns[data_id]
                if name:
                    setattr(message, name, values[k])
            made.append(message)
        return made

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
    most_hz = MOST_HZ[output.data_type]
    return max(1, math.ceil(rate_hz / most_hz - 1e-9), round(rate_hz / max(1, output.rate_hz)))


def taken_outputs(wanted: Sequence[Output]) -> Outputs | None:
    """Return the outputs that the device accepts for a wanted configuration; None if it rejects it.

    The fastest output's rate is rounded down to a divisor of 2000 Hz; the other rates become
    fractions of it.  A rate of 0 or 0xFFFF requests the highest rate.
    """
    rates = [
        min(o.rate_hz or 0xFFFF, MOST_HZ[o.data_type]) for o in wanted if o.data_type in MOST_HZ
    ]
    if not all(o.data_type in MOST_HZ or o.data_type in STAMPS for o in wanted):
        return None
    rate_hz = max((r for r in range(1, max(rates, default=1) + 1) if 2000 % r == 0), default=1)
    return tuple(
        Output(o.data_id)
        if o.comes_always
        else Output(o.data_id, round(rate_hz / divider(rate_hz, o._replace(rate_hz=_asked(o)))))
        for o in wanted
    )


def _asked(output: Output) -> int:
    return min(output.rate_hz or 0xFFFF, MOST_HZ[output.data_type])


def _column(data_id: int, batch: ImuSamples) -> tuple[str, list[tuple[float, ...]]]:
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
            force = portable.rotate(batch.rotation, batch.acc.astype(np.float64)) - _GRAVITY
            name, values = "free_acceleration", portable.rotate(local, force)
        case 0x8020:
            name, values = "rate_of_turn", batch.avel.astype(np.float64)
        case 0xC020:
            name, values = "magnetic_field", portable.rotate_back(batch.rotation, _FIELD_ENU)
        case _:
            return "", []
    return name, [tuple(row) for row in values.tolist()]


def _in_frame(local: Floats, rotation: Floats) -> Floats:
    return portable.product(np.broadcast_to(local, rotation.shape), rotation)


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
