"""Decoder of RoboSense's packets with ranges (MSOP), vectorised over packets, and its inverse.

Source: RoboSense's rs_driver; the models are in `drivers.robosense.models`.  All integers are
big-endian.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.columns import Columns, epoch_seconds
from drivers.kit.lidar.decoder import PacketDecoder, PacketEncoder, Packets
from drivers.robosense.models import BIG, MODELS, PACKET_BYTES, YMD, Model
from recorder.common.errors import FormatError

TURN: Final = 36000
"""Azimuths of a turn, in 0.01 deg."""
DUAL_NAMES: Final = ("first sent", "second sent")
"""Names of two returns: the packets do not tell which is the last and which the strongest."""
_UNIT_DEG_C: Final = 0.0625
_BLIND: Final = 100
"""A step of the azimuth in a packet from which on it is a part that the device leaves out."""

Times = npt.NDArray[np.int64]


@functools.cache
def block_dtype(model: Model) -> np.dtype[Any]:
    """Return the layout of a packet's block."""
    laser = np.dtype([("range", ">u2"), ("reflectivity", "u1")])
    return np.dtype(
        [("mark", "u1"), ("return", "u1"), ("azimuth", ">u2"), ("lasers", laser, (model.lasers,))]
    )


def read_blocks(model: Model, packets: Packets) -> npt.NDArray[Any]:
    """Return the blocks of packets, structured [packets, blocks]."""
    layout = block_dtype(model)
    end = model.header + model.blocks * layout.itemsize
    data = np.ascontiguousarray(packets[:, model.header : end])
    return data.view(layout).reshape(len(packets), model.blocks)


def find_model(packet: bytes, wanted: str | None) -> Model:
    """Return the model of a packet.

    Args:
        packet: a packet's payload.
        wanted: the configured model; needed for RS-16 and RS-32, whose packets do not differ.

    Raises:
        FormatError: no model, or not the configured one, has such packets.
    """
    found = find_models(packet)
    chosen = [model for model in found if wanted in (None, model.name)]
    if not chosen:
        head = packet[:8].hex(" ")
        of = f"a {' or '.join(m.name for m in found)}, not of a {wanted}" if found else "no model"
        raise FormatError(f"a packet of {len(packet)} bytes that begins with {head} is of {of}")
    if len(chosen) > 1:
        names = " and ".join(model.name for model in chosen)
        raise FormatError(f"packets of {names} do not differ: set the option `model`")
    return chosen[0]


def find_models(packet: bytes) -> list[Model]:
    """Return the models that have such packets."""
    return [model for model in MODELS.values() if _fits(model, packet)]


def _fits(model: Model, packet: bytes) -> bool:
    marks = {packet[model.header + k * model.block_bytes :][:1] for k in range(model.blocks)}
    whole = len(packet) == PACKET_BYTES and packet.startswith(model.id)
    fixed = whole and all(packet[at] == value for at, value in model.fixed)
    return fixed and marks == {bytes([model.mark])}


class RobosenseDecoder(PacketDecoder, PacketEncoder):
    """Decoder and encoder of the packets of one spinning RoboSense.

    Args:
        model: of the device.
        packet: its first packet.
        returns: names of the returns of a firing, one or two; none: as the packet's azimuths tell.
        rate_hz: turns in a second, by the device; 0: by the packet's azimuths.
        firing_us: firing times of the channels; empty: the model's.

    Raises:
        FormatError: the packet does not tell the number of returns.
    """

    vendor = "RoboSense"
    turn = TURN
    packet_bytes = PACKET_BYTES
    clock = "the sensor's own, PTP or GPS"

    def __init__(
        self,
        model: Model,
        packet: bytes,
        returns: Sequence[str] = (),
        rate_hz: float = 0.0,
        firing_us: Sequence[float] = (),
    ) -> None:
        self._model, self._packet = model, packet
        blocks = read_blocks(model, np.frombuffer(packet, np.uint8)[None])[0]
        azimuth = blocks["azimuth"].astype(np.int64)
        parts = model.channels // model.lasers or 1  # blocks of a column and return
        if model.mode_at:
            returns = DUAL_NAMES if packet[model.mode_at] in model.dual else ("single",)
        elif not returns:
            if model.firings > 1:
                raise FormatError(
                    f"packets of a {model.name} do not tell the number of returns: give its DIFOP "
                    "packets, or the option `returns`"
                )
            pairs = (np.diff(azimuth[::parts]) == 0).any()
            returns = DUAL_NAMES if pairs else ("single",)
        self.returns = tuple(returns)
        self.model, self.channels, self.unit_mm = model.name, model.channels, model.unit_mm
        self.column_ns = 1000.0 * model.column_us
        self.confidence = bool(model.feature_bits)
        self.number_bits = 32 if model.number_at else 0
        self.states = {0: tuple(round(1000 * us) for us in firing_us or model.firing_us)}
        # Blocks of one firing; of RS-16, a block has two firings, or two returns of one.
        self._size = parts * (len(self.returns) if model.firings == 1 else 1)
        self._spread = model.firings if len(self.returns) == 1 else 1
        self._aligned = model.blocks % self._size == 0
        self.columns = model.blocks // self._size * self._spread if self._aligned else 1
        self._rest: tuple[npt.NDArray[Any], Times, Times] | None = None
        steps = np.diff(azimuth) % TURN
        steps = steps[(steps > 0) & (steps < _BLIND)]
        per_turn = TURN * self._spread / float(np.median(steps)) if len(steps) else 0.0
        told_hz = round(1e9 / (self.column_ns * per_turn)) if per_turn else 10
        self.rate_hz = float(rate_hz or told_hz or 10)

    def find_sound(self, packets: Packets) -> npt.NDArray[np.bool_]:
        model = self._model
        begin = np.frombuffer(model.id, np.uint8)
        sound = (packets[:, : len(begin)] == begin).all(axis=1)
        for at in (*(at for at, _ in model.fixed), *([model.mode_at] if model.mode_at else [])):
            sound &= packets[:, at] == self._packet[at]
        blocks = read_blocks(model, packets)
        sound &= (blocks["mark"] == model.mark).all(axis=1)
        sound &= (blocks["azimuth"] < TURN).all(axis=1)
        if model.time == YMD:
            date = packets[:, model.time_at : model.time_at + 6].T
            for values, least, most in zip(
                date[1:], (1, 1, 0, 0, 0), (12, 31, 23, 59, 60), strict=True
            ):
                sound &= (values >= least) & (values <= most)
        return np.asarray(sound, bool)

    def read_numbers(self, packets: Packets) -> npt.NDArray[np.uint32]:
        at = self._model.number_at
        return np.ascontiguousarray(packets[:, at : at + 4]).view(">u4")[:, 0].astype(np.uint32)

    def read_times(self, packets: Packets) -> Times:
        return decode_times(self._model, packets)

    def decode(self, packets: Packets, epoch_ns: Times) -> Columns:
        model, blocks = self._model, read_blocks(self._model, packets)
        times = decode_times(model, packets)[:, None] + self._block_times(blocks)
        arrival = np.repeat(epoch_ns, model.blocks)
        flat, at = blocks.ravel(), times.ravel()
        if not self._aligned:
            flat, at, arrival = self._align(flat, at, arrival)
        returns = len(self.returns)
        whole = flat.reshape(-1, self._size)
        lasers = whole["lasers"].reshape(-1, max(returns, model.firings), model.channels)
        azimuth, t_ns = whole["azimuth"][:, 0], at[self._size - 1 :: self._size]
        host_ns = arrival[:: self._size]
        if self._spread > 1:  # two firings in a block
            azimuth = _spread(azimuth.reshape(len(packets), -1)).ravel()
            between = round(self.column_ns)
            t_ns = np.stack([t_ns, t_ns + between], 1).ravel()
            host_ns, lasers = np.repeat(host_ns, 2), lasers.reshape(-1, 1, model.channels)
        lasers = lasers.swapaxes(0, 1)
        bits = 16 - model.feature_bits
        raw = lasers["range"].astype("<u2")
        return Columns(
            azimuth=azimuth.astype("<u4"),
            t_ns=t_ns,
            ranges=raw & np.uint16((1 << bits) - 1),
            reflectivity=lasers["reflectivity"],
            confidence=(raw >> np.uint16(bits)).astype("u1") if model.feature_bits else None,
            host_ns=host_ns,
        )

    def _block_times(self, blocks: npt.NDArray[Any]) -> Times:
        """Return the blocks' times after their packets', ns [packets, blocks].

        Blocks of one firing have one time.  Parts of the turn that the device leaves out take the
        time in which it turns past them.
        """
        azimuth = blocks["azimuth"].astype(np.int64)
        turned = np.diff(azimuth, axis=1, prepend=azimuth[:, :1]) % TURN
        firing = np.full(turned.shape, 1000.0 * self._model.column_us * self._spread)
        firing[:, 0] = 0.0
        if self._aligned:
            firing[:, np.arange(self._model.blocks) % self._size != 0] = 0.0
        else:
            firing[turned == 0] = 0.0
        past = turned * (1e9 / (TURN * self.rate_hz))
        # A step beyond half a turn is one back: the packet is damaged.
        blind = (turned > _BLIND) & (firing > 0) & (turned < TURN // 2)
        times = np.cumsum(np.where(blind, past, firing), axis=1)
        return np.asarray(np.rint(times), np.int64)

    def _align(
        self, blocks: npt.NDArray[Any], times: Times, arrival: Times
    ) -> tuple[npt.NDArray[Any], Times, Times]:
        """Return the blocks of whole columns; the rest waits for the next packets."""
        if self._rest is not None:
            blocks = np.concatenate([self._rest[0], blocks])
            times = np.concatenate([self._rest[1], times])
            arrival = np.concatenate([self._rest[2], arrival])
        azimuth = blocks["azimuth"].astype(np.int64)
        begins = np.flatnonzero(np.diff(azimuth, prepend=-1))
        ends = np.append(begins[1:], len(azimuth))
        last = int(begins[-1]) if ends[-1] - begins[-1] < self._size else len(azimuth)
        self._rest = blocks[last:].copy(), times[last:].copy(), arrival[last:].copy()
        whole = ends - begins == self._size
        keep = (begins[whole][:, None] + np.arange(self._size)).ravel()
        return blocks[keep], times[keep], arrival[keep]

    def encode(self, columns: Columns, first_number: int = 0) -> Packets:
        model, layout = self._model, block_dtype(self._model)
        raw = columns.ranges.astype(">u2")
        if columns.confidence is not None:
            raw |= columns.confidence.astype(">u2") << np.uint16(16 - model.feature_bits)
        lasers = np.zeros(raw.shape, layout["lasers"].base)
        lasers["range"], lasers["reflectivity"] = raw, columns.reflectivity
        flat = lasers.swapaxes(0, 1).reshape(-1, model.lasers)  # one row a block
        blocks = np.zeros(len(flat), layout)
        template = read_blocks(model, np.frombuffer(self._packet, np.uint8)[None])[0]
        blocks["mark"], blocks["lasers"] = model.mark, flat
        blocks["azimuth"] = np.repeat(columns.azimuth[:: self._spread], self._size)
        count = len(blocks) // model.blocks
        blocks["return"] = np.resize(template["return"], len(blocks))
        packets = np.tile(np.frombuffer(self._packet, np.uint8), (count, 1))
        end = model.header + model.blocks * layout.itemsize
        packets[:, model.header : end] = blocks.view(np.uint8).reshape(count, -1)
        firsts = np.arange(count) * model.blocks * self._spread // self._size
        for row, t_ns in zip(packets, columns.t_ns[firsts].tolist(), strict=True):
            row[model.time_at : model.time_at + 10] = np.frombuffer(
                encode_time(model, t_ns), np.uint8
            )
        if at := model.number_at:
            numbers = (first_number + np.arange(count)).astype(">u4")
            packets[:, at : at + 4] = numbers.view(np.uint8).reshape(-1, 4)
        return packets

    def read_state(self, packets: Packets) -> dict[str, Any]:
        at, order = self._model.temperature
        return {"temperature_c": round(read_temperature(packets[-1, at : at + 2], order))}


def _spread(azimuth: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the azimuths of two firings for each block [packets, 2 * blocks].

    The second one lies half-way to the next block; behind a packet's last block, and a part that
    the device leaves out, as far as behind the block before.
    """
    first = azimuth.astype(np.int64)
    ahead = np.diff(first, axis=1) % TURN
    usual = np.median(ahead, axis=1).astype(np.int64)[:, None]
    ahead = np.where(ahead > _BLIND, usual, ahead)
    ahead = np.concatenate([ahead, ahead[:, -1:]], axis=1)
    return (np.stack([first, first + (ahead + 1) // 2], 2) % TURN).reshape(len(first), -1)


def read_temperature(field: npt.NDArray[np.uint8], order: str) -> float:
    """Return a temperature in deg C: sign and 11 bits, of which 3, or 4, low bits are not used."""
    low, high = (int(each) for each in (field[::-1] if order == BIG else field))
    value = (high & 0x7F) << 4 | low >> 4 if order == BIG else (high & 0x7F) << 5 | low >> 3
    return (-value if high & 0x80 else value) * _UNIT_DEG_C


def decode_times(model: Model, packets: Packets) -> Times:
    """Return the packets' times, i8 [packets], ns since 1970 by the sensor's clock."""
    field = packets[:, model.time_at : model.time_at + 10].astype(np.int64)
    if model.time == YMD:
        year, month, day, hour, minute, second = field[:, :6].T
        seconds = epoch_seconds(year + 2000, month, day, hour, minute, second)
        micros = (field[:, 6] * 256 + field[:, 7]) * 1000 + field[:, 8] * 256 + field[:, 9]
    else:
        seconds = field[:, 1:6] @ (256 ** np.arange(4, -1, -1, dtype=np.int64))
        micros = field[:, 6:] @ (256 ** np.arange(3, -1, -1, dtype=np.int64))
    return np.asarray(seconds * 1_000_000_000 + micros * 1000, np.int64)


def encode_time(model: Model, t_ns: int) -> bytes:
    """Return the 10 bytes of a packet's time."""
    seconds, micros = divmod(t_ns // 1000, 1_000_000)
    if model.time != YMD:
        return seconds.to_bytes(6, "big") + micros.to_bytes(4, "big")
    date = np.datetime64(seconds, "s").item()
    fields = date.year - 2000, date.month, date.day, date.hour, date.minute, date.second
    return bytes(fields) + (micros // 1000).to_bytes(2, "big") + (micros % 1000).to_bytes(2, "big")


def make_packet(model: Model, returns: int = 1) -> bytes:
    """Return a packet without measurements, such as `RobosenseDecoder` takes as the first one."""
    packet = bytearray(PACKET_BYTES)
    packet[: len(model.id)] = model.id
    for block in range(model.blocks):
        at = model.header + block * model.block_bytes
        packet[at : at + 2] = bytes((model.mark, 0xEE if model.mark == 0xFF else 1))
    for at, value in model.fixed:
        packet[at] = value
    packet[model.mode_at] |= model.dual[0] if model.mode_at and returns == 2 else 0
    packet[model.time_at : model.time_at + 10] = encode_time(model, 1_700_000_000_000_000_000)
    return bytes(packet)
