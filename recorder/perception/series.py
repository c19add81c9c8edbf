"""Streams of small samples whose numbers can be plotted: IMU, positions, and the like."""

from __future__ import annotations

from typing import Final

from recorder.codecs import Framing
from recorder.codecs.streams import ChannelSpec, StreamSpec

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
