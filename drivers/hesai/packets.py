"""Decoder of Hesai's packets, vectorised over packets: columns of ranges, with their times.

Sources: Hesai's manuals; the layouts are in `drivers.hesai.models`.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.hesai import crc
from drivers.hesai.models import MODELS, Model, read_firing_us
from drivers.kit.lidar.columns import Columns, epoch_seconds
from drivers.kit.lidar.decoder import PacketDecoder, PacketEncoder, Packets
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
_RATES_HZ: Final = (5.0, 20.0)
_SECOND_NS: Final = 1_000_000_000


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


def make_packet(model: Model, mode: int = 0x37, rpm: int = 0, unit_mm: int = 4) -> bytes:
    """Return a packet without measurements, such as `HesaiDecoder` takes as the first one.

    Args:
        model: of the device.
        mode: return mode.
        rpm: speed; 0: the model's usual one.
        unit_mm: unit of the distances, mm.
    """
    packet, tail = bytearray(max(model.sizes)), model.tail
    head = [*MARK, *(model.version or ()), *([0, 0] if model.version else [])]
    head += [model.channels, model.blocks, 0, unit_mm, len(RETURNS[mode])]
    packet[: model.header] = bytes(head[: model.header] + [0] * (model.header - len(head)))
    if model.version:
        packet[11] = 1 + 16 * model.confidence  # the packets are numbered
    layout = block_dtype(model)
    blocks = np.frombuffer(packet, layout, model.blocks, model.header)
    if model.flag_bytes:
        blocks["flag"] = MARK[::-1]
    packet[tail.mode] = mode
    packet[tail.speed : tail.speed + 2] = (rpm or model.rpm).to_bytes(2, "little")
    if not tail.seconds:
        packet[tail.date : tail.date + 6] = bytes((0, 1, 1, 0, 0, 0))
    _write_crcs(model, np.frombuffer(packet, np.uint8)[None])
    return bytes(packet)


class HesaiDecoder(PacketDecoder, PacketEncoder):
    """Decoder and encoder of the packets of one Hesai.

    Args:
        model: of the device.
        packet: its first packet, which tells unit, return mode and speed; CRCs that
            do not fit in it are not checked.

    Raises:
        FormatError: the packet has an unknown return mode.
    """

    vendor = "Hesai"
    number_bits = 32
    clock = "the sensor's date and time"

    def __init__(self, model: Model, packet: bytes) -> None:
        tail = model.tail
        self._model, self.mode, self._packet = model, packet[tail.mode], packet
        if self.mode not in RETURNS:
            raise FormatError(f"a packet with the unknown return mode {self.mode:#04x}")
        self.model, self.channels = model.name, model.channels
        self.returns = RETURNS[self.mode]
        if self.mode == 0x3B and model.version in ((6, 1), (1, 4)):
            self.returns = self.returns[::-1]
        if model.blocks % len(self.returns):
            raise FormatError(
                f"a packet with the return mode {self.mode:#04x}, whose {len(self.returns)} "
                f"returns the {model.blocks} blocks of a {model.name} do not have"
            )
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
        sweeps_hz = min(max(float(round(speed * model.mirrors / 60)), _RATES_HZ[0]), _RATES_HZ[1])
        self.rate_hz = sweeps_hz / model.mirrors
        if self.packet_bytes < tail.sequence + 4:
            self.number_bits = 0
        self._fault_count, self._faults = 0, dict[int, int]()
        first = np.frombuffer(packet, np.uint8)[None]
        self._crcs = [span for span in model.crcs if crc.find_sound(first, *span)[0]]

    def find_sound(self, packets: Packets) -> npt.NDArray[np.bool_]:
        model, tail = self._model, self._model.tail
        sound = packets[:, tail.mode] == self.mode
        begin = b"\xff\xee" if not model.header else MARK
        sound &= (packets[:, 0] == begin[0]) & (packets[:, 1] == begin[1])
        if not tail.seconds:
            date = packets[:, tail.date : tail.date + 6].T
            for values, least, most in zip(
                date[1:], (1, 1, 0, 0, 0), (12, 31, 23, 59, 60), strict=True
            ):
                sound &= (values >= least) & (values <= most)
        return np.asarray(sound, bool)

    def find_intact(self, packets: Packets) -> npt.NDArray[np.bool_]:
        intact = np.ones(len(packets), np.bool_)
        for begin, end in self._crcs:
            intact &= crc.find_sound(packets, begin, end)
        return intact

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
        data = packets[:, begin : begin + model.blocks * layout.itemsize]
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

    def encode(self, columns: Columns, first_number: int = 0) -> Packets:
        model, tail, returns = self._model, self._model.tail, len(self.returns)
        count, groups = len(columns.azimuth) // self.columns, self.columns
        packets = np.repeat(np.frombuffer(self._packet, np.uint8)[None], count, axis=0)
        layout, begin = block_dtype(model), model.header
        data = np.ascontiguousarray(packets[:, begin : begin + model.blocks * layout.itemsize])
        blocks = data.view(layout).reshape(count * groups, returns)
        scale = 256 if model.fine else 1
        blocks["azimuth"] = columns.azimuth[:, None] // scale
        if model.fine:
            blocks["fine"] = columns.azimuth[:, None] % 256
        channels = blocks["channels"]
        channels["range"] = columns.ranges.swapaxes(0, 1)
        channels["reflectivity"] = columns.reflectivity.swapaxes(0, 1)
        if columns.confidence is not None:
            channels["confidence"] = columns.confidence.swapaxes(0, 1)
        packets[:, begin : begin + data.shape[1]] = blocks.view(np.uint8).reshape(count, -1)
        t_ns = columns.t_ns.reshape(count, groups)[:, 0] - self._group_ns[0]
        _write_times(model, packets, t_ns)
        if self.number_bits:
            numbers = np.arange(first_number, first_number + count).astype("<u4")
            packets[:, tail.sequence : tail.sequence + 4] = numbers[:, None].view(np.uint8)
        if columns.state is not None:
            _write_states(model, packets, columns.state.reshape(count, groups), returns)
        if self._crcs:
            _write_crcs(model, packets)
        return packets

    def read_state(self, packets: Packets) -> dict[str, Any]:
        tail, newest = self._model.tail, packets[-1]
        speed = int(newest[tail.speed]) + 256 * int(newest[tail.speed + 1])
        state: dict[str, Any] = {"motor_rpm": round(speed / _SPEEDS_RPM) * _SPEEDS_RPM}
        if tail.shutdown:
            state["shut_down_by_temperature"] = bool(newest[tail.shutdown] & 1)
        if tail.safety:
            status = int(newest[tail.safety + 1])
            state["safety_lidar_state"] = status >> 5
            state["safety_fault_type"] = status >> 3 & 3
            state["safety_fault_codes"] = self._read_faults(packets)
        return state

    def _read_faults(self, packets: Packets) -> list[str]:
        """Return the codes of all faults: of several, each packet has another one."""
        at = self._model.tail.safety + 2  # how many there are, which it is, and its code, u2
        count = int(packets[-1, at]) >> 4
        rows = packets[-1:, at : at + 3]
        if count > 1:
            rows = np.unique(packets[packets[:, at] >> 4 == count, at : at + 3], axis=0)
        if count != self._fault_count or count < 2:
            self._fault_count, self._faults = count, {}
        self._faults |= {info & 15: low + 256 * high for info, low, high in rows.tolist()}
        return [f"{code:#06x}" for _, code in sorted(self._faults.items()) if code]


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


def _write_times(model: Model, packets: Packets, t_ns: npt.NDArray[np.int64]) -> None:
    """Write times to packets, with the first packet's count of years."""
    tail, at = model.tail, model.tail.micros
    seconds, rest = t_ns // _SECOND_NS, t_ns % _SECOND_NS
    packets[:, at : at + 4] = (rest // 1000).astype("<u4")[:, None].view(np.uint8)
    for second in np.unique(seconds).tolist():
        if tail.seconds:
            date = bytes((0, *int(second).to_bytes(5, "big")))
        else:
            found = time.gmtime(second)
            since = 1900 if packets[0, tail.date] >= 100 else 2000
            date = bytes(((found.tm_year - since) % 256, *found[1:6]))
        packets[seconds == second, tail.date : tail.date + 6] = np.frombuffer(date, np.uint8)


def _write_crcs(model: Model, packets: Packets) -> None:
    """Write the CRCs of packets, in place."""
    for begin, end in model.crcs:
        found = crc.compute(packets[:, begin:end])
        packets[:, end : end + crc.CRC_BYTES] = found[:, None].view(np.uint8)


def _write_states(
    model: Model, packets: Packets, states: npt.NDArray[np.uint8], returns: int
) -> None:
    """Write the columns' states, the inverse of `_states`."""
    tail, groups = model.tail, states.shape[1]
    if tail.flag and returns > 1:
        packets[:, tail.flag] = packets[:, tail.flag] & 0xFE | (1 - states[:, 0])
    if tail.azimuth_state:
        shifts = 14 - 2 * np.arange(groups * returns, dtype=np.uint16)
        bits = ((np.repeat(states, returns, axis=1).astype(np.uint16) & 3) << shifts).sum(axis=1)
        packets[:, tail.azimuth_state] = bits & 255
        packets[:, tail.azimuth_state + 1] = bits >> 8
        packets[:, tail.operational_state] = states[:, 0] >> 2
