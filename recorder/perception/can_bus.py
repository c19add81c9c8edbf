"""Streams of CAN buses: recognition of frames and decoded signals.

A sample of a stream of frames is a frame: ``id`` (u4, with the flags of linux/can.h), ``len`` and
``flags`` (u1), ``data`` (u1[8], or u1[64] with frames of CAN FD).  A stream of signals has the
signals of a message, and declares the message in its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from recorder.codecs.streams import StreamSpec
from recorder.session.stream import Stream

EXTENDED: Final = 0x8000_0000
REMOTE: Final = 0x4000_0000
ERROR: Final = 0x2000_0000
ID_MASK: Final = 0x1FFF_FFFF
FD: Final = 0x04
"""Flag of a frame of CAN FD, in the channel ``flags``."""

_FORMS: Final[Mapping[str, tuple[str, tuple[list[int], ...]]]] = {
    "id": ("u4", ([],)),
    "len": ("u1", ([],)),
    "flags": ("u1", ([],)),
    "data": ("u1", ([8], [64])),
}
_SETTINGS: Final = frozenset({"message", "id", "cycle_s"})


def holds_can_frames(stream: Stream | StreamSpec) -> bool:
    """Return whether the samples of a stream are frames of a CAN bus."""
    meta: Mapping[str, Mapping[str, Any]]
    meta = stream.meta() if isinstance(stream, StreamSpec) else stream.meta
    for name, (dtype, shapes) in _FORMS.items():
        entry = meta.get(name)
        if entry is None or (entry["format"], entry["type"]) != ("raw", dtype):
            return False
        if list(entry["shape"]) not in shapes:
            return False
    return True


def holds_can_signals(stream: Stream | StreamSpec) -> bool:
    """Return whether the samples of a stream are decoded signals of a CAN message."""
    spec = stream if isinstance(stream, StreamSpec) else stream.spec
    return spec is not None and spec.settings.keys() >= _SETTINGS
