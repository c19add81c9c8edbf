"""The stream of datagrams, and the common part of its sources."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from drivers.kit.driver import SensorConfig
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ConfigError

MOST_BYTES: Final = 65535
"""Longest datagram (RFC 768; jumbograms are not supported)."""
_USUAL_BYTES: Final = 1500


def datagram_stream(
    sensor: SensorConfig, settings: Mapping[str, Any], rate_hz: float | None
) -> StreamSpec:
    """Return the declaration of a sensor's stream.

    Args:
        sensor: the sensor's entry.
        settings: ``address`` and ``port``, the destination of the datagrams.
        rate_hz: datagrams per second; None where it is not known.
    """
    text = "IP address of the sender, IPv4 as ::ffff:a.b.c.d"
    return StreamSpec(
        sensor.name,
        (
            ChannelSpec("payload", "bytes", "u1", (MOST_BYTES,), "data of the datagram"),
            ChannelSpec("source", "raw", "u1", (16,), text),
            ChannelSpec("source_port", "raw", "u2", (), "UDP port of the sender"),
            ChannelSpec("port", "raw", "u2", (), "UDP port of the destination"),
        ),
        rate_hz=rate_hz,
        bytes_per_sample=_USUAL_BYTES,
        finite=sensor.scheme == "file",
        description="UDP datagrams",
        settings=settings,
    )


def parse_sender(sensor: SensorConfig) -> bytes | None:
    """Return the address, 16 bytes, from which alone datagrams are recorded; None: from all.

    Raises:
        ConfigError: the option ``sender`` is not an IP address.
    """
    text = sensor.options["sender"]
    if text is None:
        return None
    try:
        return map_address(ipaddress.ip_address(text).packed)
    except ValueError:
        raise ConfigError(f"{text!r} is not an IP address", key=f"{sensor.name}.sender") from None


def map_address(address: bytes) -> bytes:
    """Convert an IP address to 16 bytes: IPv4 to ::ffff:a.b.c.d."""
    return address if len(address) == 16 else bytes(10) + b"\xff\xff" + address
