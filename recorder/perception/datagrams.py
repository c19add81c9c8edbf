"""Streams of UDP datagrams: recognition, and the destination address.

A sample is a datagram: ``payload`` (its bytes), ``source`` (u1[16], the sender's IP address, IPv4
as ::ffff:a.b.c.d), ``source_port`` and ``port`` (u2, the destination's).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from recorder.codecs.streams import StreamSpec
from recorder.session.stream import Stream

PAYLOAD: Final = "payload"
CHANNELS: Final = (PAYLOAD, "source", "source_port", "port")

_FORMS: Final[Mapping[str, tuple[str, str, list[int] | None]]] = {
    PAYLOAD: ("bytes", "u1", None),
    "source": ("raw", "u1", [16]),
    "source_port": ("raw", "u2", []),
    "port": ("raw", "u2", []),
}
_UNKNOWN_IPV4: Final = bytes(10) + b"\xff\xff" + bytes(4)


def holds_datagrams(stream: Stream | StreamSpec) -> bool:
    """Return whether the samples of a stream are UDP datagrams."""
    meta: Mapping[str, Mapping[str, Any]]
    meta = stream.meta() if isinstance(stream, StreamSpec) else stream.meta
    for name, (format_, dtype, shape) in _FORMS.items():
        entry = meta.get(name)
        if entry is None or (entry["format"], entry["type"]) != (format_, dtype):
            return False
        if shape is not None and list(entry["shape"]) != shape:
            return False
    return True


def destination_of(stream: Stream) -> bytes:
    """Return the destination IP address of the datagrams, 16 bytes.

    Returns:
        0.0.0.0 (as ::ffff:0.0.0.0) where the address is not known: the socket received at all
        addresses of the machine.
    """
    text = None if stream.spec is None else stream.spec.settings.get("address")
    try:
        address = ipaddress.ip_address(str(text).partition("%")[0])
    except ValueError:
        return _UNKNOWN_IPV4
    packed = address.packed
    return packed if len(packed) == 16 else _UNKNOWN_IPV4[:12] + packed


def address_text(address: bytes) -> str:
    """Format an IP address of 16 bytes as text, IPv4 as a.b.c.d."""
    six = ipaddress.IPv6Address(address)
    return str(six.ipv4_mapped or six)
