"""What a driver gave of its streams since its start, whether or not a session took it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recorder.contract.streams import StreamSpec


@dataclass(slots=True)
class _Given:
    sample_bytes: float  # of the last encoded sample; of a declared one before
    samples: int = 0
    nbytes: float = 0.0
    last_ns: int | None = None


class Counters:
    """Counts samples and encoded bytes by stream.

    Args:
        specs: the driver's streams.
    """

    def __init__(self, specs: Iterable[StreamSpec]) -> None:
        self._given = {spec.name: _Given(spec.encoded_bytes) for spec in specs}

    def encoded(self, stream: str, samples: int, last_ns: int, nbytes: int) -> None:
        """Count samples of so many encoded bytes; the last is of CLOCK_MONOTONIC `last_ns`."""
        given = self._given[stream]
        given.samples += samples
        given.nbytes += nbytes
        given.last_ns = last_ns
        given.sample_bytes = nbytes / samples

    def passed_by(self, stream: str, samples: int, last_ns: int) -> None:
        """Count samples that nobody wants and that are not encoded; their bytes are estimated."""
        given = self._given[stream]
        given.samples += samples
        given.nbytes += samples * given.sample_bytes
        given.last_ns = last_ns

    def report(self) -> dict[str, tuple[int, int, int | None]]:
        """By stream: samples, bytes, CLOCK_MONOTONIC ns of the latest sample (None: no sample)."""
        return {n: (g.samples, round(g.nbytes), g.last_ns) for n, g in self._given.items()}
