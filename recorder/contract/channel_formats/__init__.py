"""Channel formats of roverd: the codec and the description of each, one row a format.

How each is stored is in `recorder.formats.roverd`, whose registry has the same keys.  A format
that drivers record is declared in a `recorder.contract.streams.ChannelSpec`; the others are what
traces of roverd hold besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from recorder.contract.channel_formats.arrays import Npz, Raw, Xz, XzFrames
from recorder.contract.channel_formats.base import Buffer, ChannelFormat
from recorder.contract.channel_formats.jpeg import Jpeg

if TYPE_CHECKING:
    from recorder.contract.streams import ChannelSpec

CHANNEL_FORMATS: Mapping[str, ChannelFormat] = {
    found.name: found
    for found in (
        Raw("raw"),
        Xz("lzma"),
        XzFrames("lzmaf"),
        Jpeg("mjpg"),
        Npz("npz", recorded_as="lzmaf"),
        Jpeg("jpg", recorded_as="mjpg"),
    )
}
"""By the name in ``meta.json``."""

RECORDED_FORMATS = tuple(n for n, found in CHANNEL_FORMATS.items() if found.recorded_as == n)
"""Formats that a driver may declare."""
PICTURE_FORMATS = tuple(n for n, found in CHANNEL_FORMATS.items() if found.picture)
"""Formats whose samples are pictures."""


def channel_files(channel: str, format_: str) -> tuple[str, ...]:
    """Names of a channel's files; of a format that is unknown, the channel's own alone."""
    found = CHANNEL_FORMATS.get(format_)
    return (channel,) if found is None else found.files(channel)


def payload(
    channels: Sequence[ChannelSpec], encoded: Sequence[Sequence[Buffer]]
) -> tuple[list[Buffer], tuple[npt.NDArray[np.uint32], ...]]:
    """What a data message carries of samples: a frame a channel, and u4 sizes [n] of variable ones.

    Args:
        channels: the stream's, in the order of its declaration.
        encoded: the frames that each channel's codec gave.
    """
    frames, sizes = [], []
    for channel, parts in zip(channels, encoded, strict=True):
        if channel.variable:
            sizes.append(np.array([len(part) for part in parts], np.uint32))
        frames.append(parts[0] if len(parts) == 1 else b"".join(parts))
    return frames, tuple(sizes)
