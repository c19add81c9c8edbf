"""Detection of a device that repeats one sample under fresh stamps.

No sensor measures exactly the same twice.  Of each stream one sample a second is compared with the
one before: pictures, ranges and reflectivity, raw radar samples, accelerations and rates of turn.
Streams with other channels may repeat their samples (messages of a bus, datagrams, positions)::

    check = FrozenCheck(specs, report)
    check.take(item)      # each item of a device; reports when a stream freezes, or moves again
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Sample
from recorder.bus.messages import FROZEN, MOVES
from recorder.codecs import PICTURE_FORMATS
from recorder.codecs.raw_pixels import raw_pixels
from recorder.codecs.streams import StreamSpec

FROZEN_NS = 8_000_000_000
"""Length of the time, by the stamps, in which a frozen stream has repeated one sample."""
_LOOK_NS = 1_000_000_000
_LOOKS = 3  # in a row, of a slow stream
_VALUES: Final = frozenset({"rng", "rfl", "iq", "acc", "avel"})
_MOST_VALUES = 1 << 16  # of an array, spread over all of it


@dataclass(slots=True)
class _Track:
    channels: tuple[str, ...]
    look_ns: int = 0  # stamp from which on the next sample is compared
    since_ns: int = 0  # stamp of the first sample with this digest
    digest: int | None = None
    looks: int = 0  # with this digest
    frozen: bool = False


class FrozenCheck:
    """Comparison of a device's consecutive samples; see the module.

    Args:
        specs: the device's streams by name.
        report: as `drivers.kit.runner.report`.
    """

    def __init__(self, specs: Mapping[str, StreamSpec], report: Callable[..., None]) -> None:
        self._report = report
        self._tracks: dict[str, _Track] = {}
        for name, spec in specs.items():
            meta = spec.meta()
            channels = tuple(
                channel
                for channel, entry in meta.items()
                if channel in _VALUES
                or entry["format"] in PICTURE_FORMATS
                or raw_pixels(channel, entry) is not None
            )
            if channels:
                self._tracks[name] = _Track(channels)

    def take(self, item: Item | None) -> None:
        """Compare a sample if a second has passed since the last one of its stream."""
        if not isinstance(item, Sample) or (track := self._tracks.get(item.stream)) is None:
            return
        if not item.count or (t_ns := int(item.t_ns[-1])) < track.look_ns:
            return
        track.look_ns = t_ns + _LOOK_NS
        digest = 0
        for channel in track.channels:
            digest = _digest(item.data[channel], digest)
        if digest != track.digest:
            track.digest, track.since_ns, track.looks = digest, t_ns, 0
        track.looks += 1
        frozen = track.looks >= _LOOKS and t_ns - track.since_ns >= FROZEN_NS
        if frozen == track.frozen:
            return
        track.frozen = frozen
        text = "its samples differ again"
        if frozen:
            text = f"frozen: it repeats one sample under fresh stamps for {FROZEN_NS / 1e9:g} s"
        self._report(
            "event",
            kind="fault" if frozen else "device",
            stream=item.stream,
            cause=FROZEN if frozen else MOVES,
            detail=f"{item.stream}: {text}",
        )


def _digest(values: npt.NDArray[Any] | Sequence[bytes], digest: int) -> int:
    """Continue a CRC-32 with the last of several samples; of a large array with a part of it."""
    last = values[-1]
    if not isinstance(last, np.ndarray):
        return zlib.crc32(last, digest)
    flat = last.reshape(-1)
    step = flat.size // _MOST_VALUES | 1  # odd: else every row might give the same columns
    return zlib.crc32(np.ascontiguousarray(flat[::step]).data, digest)
