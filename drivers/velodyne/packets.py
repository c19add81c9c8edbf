"""Decoder of Velodyne's packets, vectorised over packets: columns of ranges, with their times.

Sources: Velodyne's manuals; the models are in `drivers.velodyne.models`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.columns import Columns, spread_azimuth
from drivers.kit.lidar.decoder import PacketDecoder, PacketEncoder, Packets
from drivers.velodyne.models import BANKS, BLOCKS, LASERS, MODELS, PACKET_BYTES, Model
from recorder.common.errors import FormatError

MODES: Final = {0x37: ("strongest",), 0x38: ("last",), 0x39: ("last", "strongest")}
"""Returns by the return mode, in the order of the blocks."""
HOUR_NS: Final = 3_600_000_000_000
TURN: Final = 36000
"""Azimuths of a turn, in 0.01 deg."""

_PACKET: Final = np.dtype(
    [
        (
            "blocks",
            [
                ("flag", "<u2"),
                ("azimuth", "<u2"),
                ("lasers", [("range", "<u2"), ("reflectivity", "u1")], (LASERS,)),
            ],
            (BLOCKS,),
        ),
        ("micros", "<u4"),
        ("mode", "u1"),
        ("product", "u1"),
    ]
)
_MODE: Final = 1204
_SINGLE, _DUAL = 0x37, 0x39
_RATES_HZ: Final = (5.0, 20.0)


def find_model(packet: bytes, name: str = "") -> Model:
    """Return the model of a packet.

    Args:
        packet: a packet's payload.
        name: the configured model; needed for models whose packets do not tell it.

    Raises:
        FormatError: it is not a packet of a known model, or not of the configured one.
    """
    wanted = MODELS.get(name)
    told = wanted is None or wanted.product is not None
    head = packet[:8].hex(" ")
    if (
        len(packet) != PACKET_BYTES
        or packet[:2] != BANKS[0].to_bytes(2, "little")
        or (told and packet[_MODE] not in MODES)
    ):
        what = f"of a {name}" if name else "of a known model"
        raise FormatError(f"a packet of {len(packet)} bytes that begins with {head} is not {what}")
    if wanted is not None and wanted.product is None:
        marks = np.frombuffer(packet, _PACKET)["blocks"][0]["flag"]
        if (marks != np.resize(BANKS[: wanted.banks], BLOCKS)).any():
            raise FormatError(f"a packet whose blocks are not of the two banks of a {name}")
        return wanted
    found = next((model for model in MODELS.values() if model.product == packet[-1]), None)
    if found is None:
        raise FormatError(f"a packet of the unknown product {packet[-1]:#04x}")
    if wanted not in (None, found):
        raise FormatError(f"a packet of a {found.name}, not of a {name}")
    return found


def make_packet(model: Model, mode: int = 0x37) -> bytes:
    """Return a packet without measurements, such as `VelodyneDecoder` takes as the first one."""
    packet = np.zeros(1, _PACKET)
    group = model.banks * len(MODES[mode])
    used = BLOCKS // group * group
    marks = np.array(BANKS[: model.banks])
    if model.product is not None:
        marks = np.repeat(marks, len(MODES[mode]))
        packet["mode"], packet["product"] = mode, model.product
    elif len(MODES[mode]) > 1:  # the azimuths tell it
        step = round(TURN * model.column_us * 1e-5)
        packet["blocks"]["azimuth"] = np.arange(BLOCKS) // group * step
    packet["blocks"]["flag"][0, :used] = np.resize(marks, used)
    return packet.tobytes()


def _have_two_returns(azimuth: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which packets of an HDL-64E have two returns, by their blocks [packets, 12].

    Its packets do not tell the mode.  The four blocks of two returns have one azimuth.
    """
    turns = azimuth[:, 0] != azimuth[:, 4]
    return np.asarray(turns & (azimuth[:, 0] == azimuth[:, 2]) & (azimuth[:, 4] == azimuth[:, 6]))


class VelodyneDecoder(PacketDecoder, PacketEncoder):
    """Decoder and encoder of the packets of one Velodyne.

    Args:
        model: of the device.
        packet: its first packet, which tells the return mode, and the speed by its azimuths.
        rate_hz: turns in a second; 0: as the packet tells, 10 where it has one azimuth.
    """

    vendor = "Velodyne"
    turn = TURN
    packet_bytes = PACKET_BYTES
    confidence = False
    number_bits = 0
    clock = "time in the hour of GPS or of the sensor's start; the hour is the host's"
    clock_span_ns = HOUR_NS

    def __init__(self, model: Model, packet: bytes, rate_hz: float = 0.0) -> None:
        self._model, self._packet = model, packet
        self._told = model.product is not None
        azimuths = np.frombuffer(packet, _PACKET)["blocks"]["azimuth"]
        self.mode = packet[_MODE] if self._told else _SINGLE
        if not self._told and _have_two_returns(azimuths)[0]:
            self.mode = _DUAL
        self._state: dict[str, Any] = {}
        self.model, self.channels, self.unit_mm = model.name, model.channels, model.unit_mm
        # HDL-64E sends the banks of the strongest returns first, VLS-128 both returns of a bank.
        self.returns = MODES[self.mode] if self._told else MODES[self.mode][::-1]
        self._places = (0, 1, 2, 3) if self._told else (0, 1, 3, 2)  # of bank and return
        self.column_ns = 1000 * model.column_us
        self._groups = BLOCKS // (model.banks * len(self.returns))
        self._used = self._groups * model.banks * len(self.returns)  # VLS-128 leaves blocks empty
        self.columns = self._groups * max(1, LASERS // model.channels)
        self.states = {0: tuple(round(1000 * us) for us in model.firing_us)}
        steps = np.arange(self.columns) * self.column_ns + 1000 * model.begin_us
        self._column_ns = np.round(steps).astype(np.int64)
        self._marks = np.frombuffer(packet, _PACKET)["blocks"][0]["flag"][: self._used]
        blocks = azimuths[0].astype(np.int64)
        turned = np.diff(blocks[: self._used : model.banks * len(self.returns)]) % TURN
        group_ns = self.column_ns * self.columns / self._groups
        if len(turned) and not rate_hz:  # speeds that can be set are whole turns in a second
            rate_hz = float(round(float(np.median(turned)) / TURN / group_ns * 1e9))
        self.rate_hz = min(max(rate_hz or 10.0, _RATES_HZ[0]), _RATES_HZ[1])

    def find_sound(self, packets: Packets) -> npt.NDArray[np.bool_]:
        found = np.ascontiguousarray(packets).view(_PACKET)[:, 0]
        blocks = found["blocks"][:, : self._used]
        right = (blocks["flag"] == self._marks).all(axis=1)
        right &= (blocks["azimuth"] < TURN).all(axis=1)
        right &= found["micros"] < HOUR_NS // 1000
        if self._told:
            right &= (found["mode"] == self.mode) & (found["product"] == self._model.product)
        else:
            two = _have_two_returns(blocks["azimuth"])
            still = blocks["azimuth"][:, 0] == blocks["azimuth"][:, 4]
            right &= two if len(self.returns) > 1 else still | ~two
        return np.asarray(right, bool)

    def read_numbers(self, packets: Packets) -> npt.NDArray[np.uint32]:
        raise NotImplementedError("Velodyne's packets have no numbers")

    def read_times(self, packets: Packets) -> npt.NDArray[np.int64]:
        found = np.ascontiguousarray(packets).view(_PACKET)[:, 0]
        return np.asarray(found["micros"].astype(np.int64) * 1000)

    def decode(self, packets: Packets, epoch_ns: npt.NDArray[np.int64]) -> Columns:
        found = np.ascontiguousarray(packets).view(_PACKET)[:, 0]
        count, returns = len(found), len(self.returns)
        blocks = self._arrange(found["blocks"][:, : self._used])
        lasers = blocks["lasers"].transpose(3, 0, 1, 2, 4)
        lasers = lasers.reshape(returns, count * self.columns, self.channels)
        azimuth = blocks["azimuth"][:, :, 0, 0]
        spread = count * self.columns > azimuth.size
        t_ns = complete_hour(self.read_times(packets), epoch_ns)
        return Columns(
            azimuth=spread_azimuth(azimuth, TURN) if spread else azimuth.ravel().astype("<u4"),
            t_ns=(t_ns[:, None] + self._column_ns).ravel(),
            ranges=lasers["range"],
            reflectivity=lasers["reflectivity"],
        )

    def _arrange(self, blocks: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a view of blocks as [packets, groups, banks, returns]."""
        sizes = self._model.banks, len(self.returns)
        shape = (len(blocks), self._groups, *(sizes if self._told else sizes[::-1]))
        return blocks.reshape(shape).transpose(self._places)

    def encode(self, columns: Columns, first_number: int = 0) -> Packets:  # noqa: ARG002  no number
        count, returns = len(columns.azimuth) // self.columns, len(self.returns)
        packets = np.repeat(np.frombuffer(self._packet, _PACKET), count)
        shape = returns, count, self._groups, self._model.banks, LASERS
        used: npt.NDArray[Any] = packets["blocks"][:, : self._used].copy()
        blocks = self._arrange(used)
        for name, values in (("range", columns.ranges), ("reflectivity", columns.reflectivity)):
            blocks["lasers"][name] = values.reshape(shape).transpose(1, 2, 3, 0, 4)
        azimuth = columns.azimuth.reshape(count, self._groups, -1)[:, :, 0]
        blocks["azimuth"] = azimuth[:, :, None, None]
        packets["blocks"][:, : self._used] = used
        t_ns = columns.t_ns.reshape(count, self.columns)[:, 0] - self._column_ns[0]
        packets["micros"] = t_ns % HOUR_NS // 1000
        return packets.view(np.uint8).reshape(count, PACKET_BYTES)

    def read_state(self, packets: Packets) -> dict[str, Any]:
        if self._told:
            return {}
        temperatures = packets[packets[:, _MODE] == ord("T"), _MODE + 1]
        if len(temperatures):
            self._state = {"temperature_c": int(temperatures[-1])}
        return self._state


def complete_hour(
    since_hour_ns: npt.NDArray[np.int64], epoch_ns: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return epoch times of times within the hour: those nearest to the host's times.

    Args:
        since_hour_ns: i8 [packets].
        epoch_ns: i8 [packets], the host's times, epoch ns; right within half an hour.
    """
    hours = (epoch_ns - since_hour_ns + HOUR_NS // 2) // HOUR_NS
    return np.asarray(since_hour_ns + hours * HOUR_NS, np.int64)
