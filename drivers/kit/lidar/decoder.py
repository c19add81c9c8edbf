"""Interface of the decoders of one vendor's packets, which the kit's streams drive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.columns import Columns

Packets = npt.NDArray[np.uint8]


class PacketDecoder(ABC):
    """Decoder of the packets of one device.

    Attributes:
        vendor, model: names in ``beams.json``.
        channels: channels of a column.
        returns: names of the returns that are recorded, in order: ``last``, ``strongest``, ...
        unit_mm: unit of the ranges, mm.
        turn: azimuths of a turn.
        packet_bytes: length of the packets.
        column_ns: interval of columns, ns.
        columns: columns of a packet.
        confidence: measurements have a confidence.
        states: firing times of the channels, ns, by the state of a column; None: does not fire.
        rate_hz: turns in a second, as the first packets tell.
        number_bits: width of the packets' numbers; 0: they have none.
        clock: which clock the packets' times are of; empty: unknown.
        clock_span_ns: time after which the packets' own times begin again at 0; 0: never.
    """

    vendor: str
    model: str
    channels: int
    returns: tuple[str, ...]
    unit_mm: float
    turn: int
    packet_bytes: int
    column_ns: float
    columns: int
    confidence: bool
    states: dict[int, tuple[int | None, ...]]
    rate_hz: float
    number_bits: int
    clock: str = ""
    clock_span_ns: int = 0

    @abstractmethod
    def find_sound(self, packets: Packets) -> npt.NDArray[np.bool_]:
        """Return which packets can be decoded: their marks, mode and date are right."""

    def find_intact(self, packets: Packets) -> npt.NDArray[np.bool_]:
        """Return in which sound packets the checksums fit, bool [packets]."""
        return np.ones(len(packets), np.bool_)

    @abstractmethod
    def read_numbers(self, packets: Packets) -> npt.NDArray[np.uint32]:
        """Return the packets' numbers, u4 [packets]; only with `number_bits`."""

    def read_times(self, packets: Packets) -> npt.NDArray[np.int64]:
        """Return the packets' own times, i8 [packets], ns, within `clock_span_ns`.

        Packets without numbers are put in order by them.
        """
        return self.decode(packets, np.zeros(len(packets), np.int64)).t_ns[:: self.columns]

    @abstractmethod
    def decode(self, packets: Packets, epoch_ns: npt.NDArray[np.int64]) -> Columns:
        """Decode packets in order.

        Args:
            packets: u1 [packets, packet_bytes], sound ones.
            epoch_ns: i8 [packets], the host's time of each, epoch ns, for clocks that tell a part.
        """

    @abstractmethod
    def read_state(self, packets: Packets) -> dict[str, Any]:
        """Return what the newest packet tells of the device: speed, faults; JSON types."""


class PacketEncoder(ABC):
    """Encoder of columns to packets, the inverse of a `PacketDecoder`, for emulated devices.

    Attributes:
        mode: return mode, as in the packets.
    """

    mode: int

    @abstractmethod
    def encode(self, columns: Columns, first_number: int = 0) -> Packets:
        """Return the packets of columns; all that columns do not have is the first packet's.

        Args:
            columns: of whole packets, in order.
            first_number: number of the first packet, where packets have numbers.
        """
