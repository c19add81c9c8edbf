"""Decoder of Velodyne's packets, vectorised over packets: columns of ranges, with their times.

Sources: Velodyne's manuals; the models are in `drivers.velodyne.models`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.columns import Columns, spread_azimuth
from drivers.kit.lidar.decoder import PacketDecoder, Packets
from drivers.velodyne.models import BLOCKS, LASERS, MODELS, PACKET_BYTES, Model
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
                ("flag", "V2"),
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


def find_model(packet: bytes) -> Model:
    """Return the model of a packet.

    Raises:
        FormatError: it is not a packet of a known model.
    """
    if len(packet) != PACKET_BYTES or packet[:1] != b"\xff" or packet[_MODE] not in MODES:
        head = packet[:8].hex(" ")
        raise FormatError(
            f"a packet of {len(packet)} bytes that begins with {head} is not of a known model"
        )
    for model in MODELS.values():
        if model.product == packet[-1]:
            return model
    raise FormatError(f"a packet of the unknown product {packet[-1]:#04x}")


class VelodyneDecoder(PacketDecoder):
    """Decoder of the packets of one Velodyne.

    Args:
        model: of the device.
        packet: its first packet, which tells the return mode, and the speed by its azimuths.
    """

    vendor = "Velodyne"
    turn = TURN
    packet_bytes = PACKET_BYTES
    confidence = False
    number_bits = 0

    def __init__(self, model: Model, packet: bytes) -> None:
        self._model, self._mode = model, packet[_MODE]
        self.model, self.channels, self.unit_mm = model.name, model.channels, model.unit_mm
        self.returns = MODES[self._mode]
        self.column_ns = 1000 * model.column_us
        self._banks = max(1, model.channels // LASERS)
        self._groups = BLOCKS // (self._banks * len(self.returns))
        self.columns = self._groups * max(1, LASERS // model.channels)
        self.states = {0: tuple(round(1000 * us) for us in model.firing_us)}
        steps = np.arange(self.columns) * self.column_ns + 1000 * model.begin_us
        self._column_ns = np.round(steps).astype(np.int64)
        blocks = np.frombuffer(packet, _PACKET)["blocks"][0]["azimuth"].astype(np.int64)
        turned = np.diff(blocks[:: self._banks * len(self.returns)][: self._groups]) % TURN
        group_ns = self.column_ns * self.columns / self._groups
        # Speeds that can be set are whole turns in a second.
        self.rate_hz = float(round(float(np.median(turned)) / TURN / group_ns * 1e9)) or 10.0

    def find_sound(self, packets: Packets) -> npt.NDArray[np.bool_]:
        right = (packets[:, _MODE] == self._mode) & (packets[:, _MODE + 1] == self._model.product)
        return np.asarray(right & (packets[:, 0] == 0xFF), bool)

    def read_numbers(self, packets: Packets) -> npt.NDArray[np.uint32]:
        raise NotImplementedError("Velodyne's packets have no numbers")

    def decode(self, packets: Packets, epoch_ns: npt.NDArray[np.int64]) -> Columns:
        found = np.ascontiguousarray(packets).view(_PACKET)[:, 0]
        count, returns = len(found), len(self.returns)
        blocks = found["blocks"][:, : self._groups * self._banks * returns]
        # VLS-128 pairs the returns of each bank.
        blocks = blocks.reshape(count, self._groups, self._banks, returns)
        lasers = blocks["lasers"].transpose(3, 0, 1, 2, 4)
        lasers = lasers.reshape(returns, count * self.columns, self.channels)
        azimuth = blocks["azimuth"][:, :, 0, 0].ravel()
        spread = count * self.columns > len(azimuth)
        t_ns = complete_hour(found["micros"].astype(np.int64) * 1000, epoch_ns)
        return Columns(
            azimuth=spread_azimuth(azimuth, TURN) if spread else azimuth.astype("<u4"),
            t_ns=(t_ns[:, None] + self._column_ns).ravel(),
            ranges=lasers["range"],
            reflectivity=lasers["reflectivity"],
        )

    def read_state(self, packets: Packets) -> dict[str, Any]:  # noqa: ARG002  they tell nothing
        return {}


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
