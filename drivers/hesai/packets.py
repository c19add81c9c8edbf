"""Decoder of Hesai's packets, vectorised over packets: columns of ranges, with their times.

Sources: Hesai's manuals; the layouts are in `drivers.hesai.models`.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.hesai.models import MODELS, Model, read_firing_us
from drivers.kit.lidar.columns import Columns, epoch_seconds
from drivers.kit.lidar.decoder import PacketDecoder, Packets
from recorder.common.errors import FormatError

MARK: Final = b"\xee\xff"
FIRST, SECOND, LAST, STRONGEST = "first", "second", "last", "strongest"
RETURNS: Final = {
    0x33: (FIRST,),
    0x34: (SECOND,),
    0x37: (STRONGEST,),
    0x38: (LAST,),
    0x39: (LAST, STRONGEST),
    0x3A: (FIRST, SECOND),
    0x3B: (FIRST, LAST),
    0x3C: (FIRST, STRONGEST),
    0x3D: (FIRST, LAST, STRONGEST),
    0x3E: (STRONGEST, SECOND),
}
"""Returns by the return mode, in the order of the blocks; XT and OT128 send 3B as last, first."""
_SPEEDS_RPM: Final = 60
"""Speeds that can be set are multiples of it; the motor varies by 2 rpm."""


@functools.cache
def block_dtype(model: Model) -> np.dtype[Any]:
    """Return the layout of a packet's block."""
    channel = [("range", "<u2"), ("reflectivity", "u1")]
    channel += [("confidence", "u1")] if model.confidence else []
    block: list[Any] = [("flag", "V2")] if model.flag_bytes else []
    block += [("azimuth", "<u2"), *([("fine", "u1")] if model.fine else [])]
    return np.dtype([*block, ("channels", channel, (model.channels,))])


def find_model(packet: bytes, name: str = "") -> Model:
    """Return the model of a packet, by its header and size.

    Args:
        packet: a packet's payload.
        name: the configured model; needed for models whose packets have no header.

    Raises:
        FormatError: no model, or not the configured one, has such packets.
    """
    size = len(packet)
    fits = [m for m in MODELS.values() if size in m.sizes and _has_header(m, packet)]
    if name:
        fits = [m for m in fits if m.name == name]
    if len(fits) != 1:
        wanted = f"of a {name}" if name else "of a known model"
        head = packet[:8].hex(" ")
        raise FormatError(f"a packet of {size} bytes that begins with {head} is not {wanted}")
    return fits[0]


def _has_header(model: Model, packet: bytes) -> bool:
    if not model.header:
        return packet[:2] == MARK[::-1]
    if packet[:2] != MARK:
        return False
    if model.version is None:
        return packet[2:4] == bytes((model.channels, model.blocks))
    return packet[2:4] == bytes(model.version) and packet[6:8] == bytes(
        (model.channels, model.blocks)
    )


class HesaiDecoder(PacketDecoder):
    """Decoder of the packets of one Hesai.

    Args:
        model: of the device.
        packet: its first packet, which tells unit, return mode and speed.

    Raises:
        FormatError: the packet has an unknown return mode.
    """

    vendor = "Hesai"
    number_bits = 32

    def __init__(self, model: Model, packet: bytes) -> None:
        tail = model.tail
        self._model, self._mode = model, packet[tail.mode]
        if self._mode not in RETURNS:
            raise FormatError(f"a packet with the unknown return mode {self._mode:#04x}")
        self.model, self.channels = model.name, model.channels
        self.returns = RETURNS[self._mode]
        if self._mode == 0x3B and model.version in ((6, 1), (1, 4)):
            self.returns = self.returns[::-1]
        unit_at = 9 if model.header == 12 else 5
        self.unit_mm = model.unit_mm or float(packet[unit_at])
        self.packet_bytes, self.confidence = len(packet), model.confidence
        self.turn = 36000 * (256 if model.fine else 1)
        self.columns = model.blocks // len(self.returns)
        times = [model.group_us(b, len(self.returns)) for b in range(model.blocks)]
        self._group_ns = np.round(1000 * np.array(times[:: len(self.returns)])).astype(np.int64)
        self.column_ns = 1000.0 * (times[-1] - times[0]) / max(1, self.columns - 1)
        if self.columns == 1:
            self.column_ns = 1000.0 * abs(model.group_us(0, 1) - model.group_us(1, 1))
        self.states = {
            state: tuple(None if us is None else round(1000 * us) for us in row)
            for state, row in read_firing_us(model).items()
        }
        speed = int.from_bytes(packet[tail.speed : tail.speed + 2], "little")
        self.rate_hz = speed / 60
        if self.packet_bytes < tail.sequence + 4:
            self.number_bits = 0

    def find_sound(self, packets: Packets) -> npt.NDArray[np.bool_]:
        model, tail = self._model, self._model.tail
        sound = packets[:, tail.mode] == self._mode
        begin = b"\xff\xee" if not model.header else MARK
        sound &= (packets[:, :2] == np.frombuffer(begin, np.uint8)).all(axis=1)
        if not tail.seconds:
            date = packets[:, tail.date : tail.date + 6].T
            for values, least, most in zip(
                date[1:], (1, 1, 0, 0, 0), (12, 31, 23, 59, 60), strict=True
            ):
                sound &= (values >= least) & (values <= most)
        return np.asarray(sound, bool)

    def read_numbers(self, packets: Packets) -> npt.NDArray[np.uint32]:
        at = self._model.tail.sequence
        return np.ascontiguousarray(packets[:, at : at + 4]).view("<u4")[:, 0]

    def decode(
        self,
        packets: Packets,
        epoch_ns: npt.NDArray[np.int64],  # noqa: ARG002  the date is whole
    ) -> Columns:
        model, count, returns = self._model, len(packets), len(self.returns)
        layout, begin = block_dtype(model), model.header
        data = np.ascontiguousarray(packets[:, begin : begin + model.blocks * layout.itemsize])
        blocks = data.view(layout).reshape(count, self.columns, returns)
        azimuth = blocks["azimuth"][:, :, 0].astype("<u4")
        if model.fine:
            azimuth = azimuth * 256 + blocks["fine"][:, :, 0]
        channels = blocks["channels"].reshape(count * self.columns, returns, model.channels)
        return Columns(
            azimuth=azimuth.ravel(),
            t_ns=(decode_times(model, packets)[:, None] + self._group_ns).ravel(),
            ranges=channels["range"].swapaxes(0, 1),
            reflectivity=channels["reflectivity"].swapaxes(0, 1),
            confidence=channels["confidence"].swapaxes(0, 1) if model.confidence else None,
            state=_states(model, packets, self.columns, returns),
        )

    def read_state(self, packets: Packets) -> dict[str, Any]:
        tail, newest = self._model.tail, packets[-1]
        speed = int(newest[tail.speed]) + 256 * int(newest[tail.speed + 1])
        return {"motor_rpm": round(speed / _SPEEDS_RPM) * _SPEEDS_RPM}


def _states(
    model: Model, packets: Packets, groups: int, returns: int
) -> npt.NDArray[np.uint8] | None:
    """Return the state of each column, which selects its firing times; None: there is one."""
    tail, count = model.tail, len(packets)
    if tail.flag:
        if returns == 1:  # the loops alternate by block
            return np.tile(np.arange(groups, dtype=np.uint8) % 2, count)
        return np.repeat(1 - (packets[:, tail.flag] & 1), groups)
    if tail.azimuth_state:
        high, low = packets[:, tail.azimuth_state + 1], packets[:, tail.azimuth_state]
        bits = high.astype(np.uint16) << 8 | low
        shifts = 14 - 2 * returns * np.arange(groups, dtype=np.uint16)
        azimuth = (bits[:, None] >> shifts) & 3
        operation = packets[:, tail.operational_state].astype(np.uint16)[:, None] * 4
        return (operation + azimuth).ravel().astype(np.uint8)
    return None


def decode_times(model: Model, packets: Packets) -> npt.NDArray[np.int64]:
    """Return the packets' times, i8 [packets], ns since 1970 by the sensor's clock."""
    at = model.tail.micros
    micros = np.ascontiguousarray(packets[:, at : at + 4]).view("<u4")[:, 0].astype(np.int64)
    date = packets[:, model.tail.date : model.tail.date + 6].astype(np.int64)
    if model.tail.seconds:
        seconds = date[:, 1:] @ (256 ** np.arange(4, -1, -1, dtype=np.int64))
    else:
        year, month, day, hour, minute, second = date.T
        year = year + np.where(year >= 100, 1900, 2000)
        seconds = epoch_seconds(year, month, day, hour, minute, second)
    return np.asarray(seconds * 1_000_000_000 + micros * 1000, np.int64)
