"""Writer of network captures with UDP datagrams: pcap with stamps in ns, over Ethernet.

The format is libpcap's (draft-ietf-opsawg-pcap, magic number 0xA1B23C4D). A datagram becomes one
frame: an Ethernet header with zero addresses and an IPv4 or IPv6 packet. The packet is whole even
if the network carried fragments. All checksums are correct (RFC 768, 791, 8200).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import BinaryIO, Final

import numpy as np

from recorder.common.errors import FormatError

MAPPED: Final = bytes(10) + b"\xff\xff"
"""Prefix of an IPv6 address that stands for an IPv4 address."""

_MAGIC: Final = 0xA1B23C4D
_SNAPSHOT: Final = 262_144  # libpcap's largest
_ETHERNET: Final = 1
_UDP: Final = 17
_HOPS: Final = 64
_MOST: Final = 0xFFFF  # of the sizes in the headers
_RECORD: Final = struct.Struct("<IIII")
_IPV4: Final = struct.Struct(">BBHHHBBH4s4s")
_IPV6: Final = struct.Struct(">IHBB16s16s")
_HEAD: Final = struct.Struct(">HHHH")


class PcapWriter:
    """Writer that appends datagrams to a capture.

    >>> with open("a.pcap", "wb") as file:
    ...     writer = PcapWriter(file)
    ...     writer.write(1_700_000_000_123_456_789, source, 2368, destination, 2368, payload)
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.write(struct.pack("<IHHiIII", _MAGIC, 2, 4, 0, 0, _SNAPSHOT, _ETHERNET))

    def write(
        self,
        t_ns: int,
        source: bytes,
        source_port: int,
        destination: bytes,
        port: int,
        payload: bytes,
    ) -> None:
        """Append a datagram.

        Args:
            t_ns: stamp of the datagram, epoch ns.
            source, destination: IP addresses, 16 bytes; IPv4 with the prefix `MAPPED`.  If only
                one of them is IPv4, both are written as IPv6.
            source_port, port: UDP ports of both.
            payload: data of the datagram.

        Raises:
            FormatError: the payload is too long for a datagram, or the stamp does not fit.
        """
        four = source.startswith(MAPPED) and destination.startswith(MAPPED)
        ends = (source[12:], destination[12:]) if four else (source, destination)
        size = 8 + len(payload)
        if size + (20 if four else 0) > _MOST:
            raise FormatError(f"{len(payload)} bytes do not fit into a datagram")
        seconds, ns = divmod(t_ns, 1_000_000_000)
        if not 0 <= seconds <= 0xFFFFFFFF:
            raise FormatError(f"the stamp {t_ns} ns is out of the range of a capture")
        pseudo = b"".join(ends) + struct.pack(">II", size, _UDP)
        body = _HEAD.pack(source_port, port, size, 0)
        checksum = _compute_checksum(pseudo + body + payload) or 0xFFFF  # 0 means: none
        head = (_make_ipv4 if four else _make_ipv6)(*ends, size)
        udp = _HEAD.pack(source_port, port, size, checksum)
        length = len(head) + size
        self._file.write(b"".join((_RECORD.pack(seconds, ns, length, length), head, udp, payload)))


@lru_cache(maxsize=1024)
def _make_ipv4(source: bytes, destination: bytes, size: int) -> bytes:
    """Return the headers of an Ethernet frame and its IPv4 packet."""

    def packed(checksum: int) -> bytes:
        ends = source, destination
        return _IPV4.pack(0x45, 0, 20 + size, 0, 0x4000, _HOPS, _UDP, checksum, *ends)

    return bytes(12) + b"\x08\x00" + packed(_compute_checksum(packed(0)))


@lru_cache(maxsize=1024)
def _make_ipv6(source: bytes, destination: bytes, size: int) -> bytes:
    """Return the headers of an Ethernet frame and its IPv6 packet."""
    head = _IPV6.pack(0x60000000, size, _UDP, _HOPS, source, destination)
    return bytes(12) + b"\x86\xdd" + head


def _compute_checksum(data: bytes) -> int:
    """Compute the Internet checksum (RFC 1071)."""
    words = np.frombuffer(data + bytes(len(data) % 2), ">u2")
    total = int(words.sum(dtype=np.uint64))
    while total > _MOST:
        total = (total & _MOST) + (total >> 16)
    return ~total & _MOST
