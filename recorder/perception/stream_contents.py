"""Recognition of streams by their channels: CAN buses, UDP datagrams, numbers that can be plotted.

A sample of a stream of CAN frames is a frame: ``id`` (u4, with the flags of linux/can.h), ``len``
and ``flags`` (u1), ``data`` (u1[8], or u1[64] with frames of CAN FD).  A stream of signals has the
signals of a message, and declares the message in its settings.

A sample of a stream of datagrams is a datagram: ``payload`` (its bytes), ``source`` (u1[16], the
sender's IP address, IPv4 as ::ffff:a.b.c.d), ``source_port`` and ``port`` (u2, the destination's).

A sample of a stream of a topic's messages is a message; see `recorder.formats.recorded_topic`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

from recorder.codecs import Framing
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.formats.recorded_topic import MESSAGE, NUMBER, PUBLISHER, SOURCE_TIME
from recorder.session.stream import Stream

EXTENDED: Final = 0x8000_0000
REMOTE: Final = 0x4000_0000
ERROR: Final = 0x2000_0000
ID_MASK: Final = 0x1FFF_FFFF
FD: Final = 0x04
"""Flag of a frame of CAN FD, in the channel ``flags``."""

PAYLOAD: Final = "payload"
CHANNELS: Final = (PAYLOAD, "source", "source_port", "port")

_Forms = Mapping[str, tuple[str, str, tuple[list[int], ...]]]
"""Format, type and possible shapes by name of a channel; no shape: any."""
_CAN_FRAMES: Final[_Forms] = {
    "id": ("raw", "u4", ([],)),
    "len": ("raw", "u1", ([],)),
    "flags": ("raw", "u1", ([],)),
    "data": ("raw", "u1", ([8], [64])),
}
_DATAGRAMS: Final[_Forms] = {
    PAYLOAD: ("bytes", "u1", ()),
    "source": ("raw", "u1", ([16],)),
    "source_port": ("raw", "u2", ([],)),
    "port": ("raw", "u2", ([],)),
}
_MESSAGES: Final[_Forms] = {
    MESSAGE: ("bytes", "u1", ()),
    NUMBER: ("raw", "u8", ([],)),
    PUBLISHER: ("raw", "u2", ([],)),
    SOURCE_TIME: ("raw", "u8", ([],)),
}
_SIGNAL_SETTINGS: Final = frozenset({"message", "id", "cycle_s"})
_UNKNOWN_IPV4: Final = bytes(10) + b"\xff\xff" + bytes(4)


def holds_can_frames(stream: Stream | StreamSpec) -> bool:
    """Return whether the samples of a stream are frames of a CAN bus."""
    return _has_channels(stream, _CAN_FRAMES)


def holds_can_signals(stream: Stream | StreamSpec) -> bool:
    """Return whether the samples of a stream are decoded signals of a CAN message."""
    spec = stream if isinstance(stream, StreamSpec) else stream.spec
    return spec is not None and spec.settings.keys() >= _SIGNAL_SETTINGS


def holds_datagrams(stream: Stream | StreamSpec) -> bool:
    """Return whether the samples of a stream are UDP datagrams."""
    return _has_channels(stream, _DATAGRAMS)


def holds_messages(stream: Stream | StreamSpec) -> bool:
    """Return whether the samples of a stream are messages of a topic, as they came."""
    return _has_channels(stream, _MESSAGES)


def _has_channels(stream: Stream | StreamSpec, forms: _Forms) -> bool:
    meta = stream.meta() if isinstance(stream, StreamSpec) else stream.meta
    return all(
        (entry := meta.get(name)) is not None
        and (entry["format"], entry["type"]) == (format_, dtype)
        and (not shapes or list(entry["shape"]) in shapes)
        for name, (format_, dtype, shapes) in forms.items()
    )


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


_MOST_VALUES: Final = 16
_MOST_BYTES: Final = 4096  # of a sample: streams of large samples are not read in whole for this


def has_series(spec: StreamSpec) -> bool:
    """Return whether the samples are small and hold numbers that can be plotted."""
    small = all(c.framing is not Framing.EACH for c in spec.channels)
    small = small and sum(c.sample_bytes for c in spec.channels) <= _MOST_BYTES
    return small and any(map(is_plotted, spec.channels))


def is_plotted(channel: ChannelSpec) -> bool:
    """Return whether a channel holds few numbers that can be plotted.

    Whole numbers of 8 bytes are stamps, and are not plotted.
    """
    kind, size = channel.np_dtype.kind, channel.np_dtype.itemsize
    return (
        channel.framing is not Framing.EACH
        and (kind == "f" or (kind in "ui" and size < 8 and not channel.device_time))
        and count_values(channel) <= _MOST_VALUES
    )


def count_values(channel: ChannelSpec) -> int:
    """Return the number of values of one sample."""
    return channel.sample_bytes // channel.np_dtype.itemsize


def value_names(channel: ChannelSpec) -> list[str]:
    """Return names of a sample's values: as the description lists them, else a vector's axes."""
    count = count_values(channel)
    listed = channel.description.partition(";")[0].rpartition(":")[2].split(",")
    if count > 1 and len(listed) == count:
        return [name.strip() for name in listed]
    if channel.shape == (3,):
        return ["x", "y", "z"]
    return [channel.name] if count == 1 else [str(k) for k in range(count)]
