"""The Ethernet protocol of a DCA1000EVM capture card: commands, answers, packets of raw data.

Layouts follow TI's "DCA1000EVM Data Capture Card User's Guide" (SPRUIJ4A), section 5.  A command
is ``<HHH`` 0xA55A, code, length, then that many bytes, then ``<H`` 0xEEAA; its answer is ``<HHHH``
0xA55A, code, status, 0xEEAA.  A data packet is a packet number of 4 bytes, from 1 on; a count of
the bytes sent before it, of 6 bytes; and 1456 bytes of LVDS data.  All values are little endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import ProtocolError

HEADER_BYTES: Final = 10
PAYLOAD_BYTES: Final = 1456
"""Payload of a packet in raw mode, fixed by the card's logic."""
PACKET_BYTES: Final = HEADER_BYTES + PAYLOAD_BYTES

COUNT_MASK: Final = (1 << 48) - 1
NUMBER_MASK: Final = (1 << 32) - 1

_HEADER: Final = np.dtype([("number", "<u4"), ("low", "<u4"), ("high", "<u2")])

RESET_FPGA: Final = 0x01
RESET_AR_DEVICE: Final = 0x02
CONFIG_FPGA: Final = 0x03
CONFIG_EEPROM: Final = 0x04
START_RECORD: Final = 0x05
STOP_RECORD: Final = 0x06
SYSTEM_ALIVENESS: Final = 0x09
SYSTEM_ERROR: Final = 0x0A
"""Sent by the card unsolicited: its status is a set of flags."""
CONFIG_RECORD: Final = 0x0B
READ_FPGA_VERSION: Final = 0x0E

_HEAD, _FOOT = 0xA55A, 0xEEAA
_COMMAND_LIMIT: Final = 504  # largest data of a command in bytes


@dataclass(frozen=True, slots=True)
class Command:
    """A request to the card."""

    code: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """The card's answer to the request with the same code; status 0 is success."""

    code: int
    status: int

    def to_bytes(self) -> bytes:
        """Encode the answer as the card does."""
        return struct.pack("<HHHH", _HEAD, self.code, self.status, _FOOT)

    @classmethod
    def parse(cls, packet: bytes) -> Answer:
        """Parse a datagram of the card; ProtocolError if it is not an answer."""
        if len(packet) != 8:
            raise ProtocolError(f"an answer of the capture card has 8 bytes, not {len(packet)}")
        head, code, status, foot = struct.unpack("<HHHH", packet)
        if (head, foot) != (_HEAD, _FOOT):
            raise ProtocolError(f"{packet.hex()} is not an answer of the capture card")
        return cls(code, status)


def parse_command(packet: bytes) -> Command:
    """Parse a request; ProtocolError if the datagram is not a request."""
    if len(packet) < 8:
        raise ProtocolError(f"a command has at least 8 bytes, not {len(packet)}")
    head, code, size = struct.unpack_from("<HHH", packet)
    if head != _HEAD or size > _COMMAND_LIMIT or len(packet) != 8 + size:
        raise ProtocolError(f"{packet[:8].hex()} ({len(packet)} bytes) is not a command")
    if struct.unpack_from("<H", packet, 6 + size) != (_FOOT,):
        raise ProtocolError(f"command {code:#x} does not end in {_FOOT:#x}")
    return Command(code, packet[6:-2])


def packet_headers(
    data: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return packet numbers and byte counts, int64 [n], of datagrams u1 [n, 10 or more]."""
    heads = np.ascontiguousarray(data[:, :HEADER_BYTES]).view(_HEADER)[:, 0]
    counts = heads["low"].astype(np.int64) | (heads["high"].astype(np.int64) << 32)
    return heads["number"].astype(np.int64), counts


def make_packets(payload: npt.NDArray[np.uint8], first: int) -> npt.NDArray[np.uint8]:
    """Make the packets that carry some bytes.

    Args:
        payload: u1 [n * 1456].
        first: number of packets before them, which determines the byte count.

    Returns:
        u1 [n, 1466].
    """
    count = len(payload) // PAYLOAD_BYTES
    packets = np.empty((count, PACKET_BYTES), np.uint8)
    numbers = first + np.arange(count, dtype=np.int64)
    heads = np.empty(count, _HEADER)
    heads["number"] = (numbers + 1) & NUMBER_MASK
    position = numbers * PAYLOAD_BYTES & COUNT_MASK
    heads["low"], heads["high"] = position & NUMBER_MASK, position >> 32
    packets[:, :HEADER_BYTES] = heads.view(np.uint8).reshape(count, HEADER_BYTES)
    packets[:, HEADER_BYTES:] = payload.reshape(count, PAYLOAD_BYTES)
    return packets
