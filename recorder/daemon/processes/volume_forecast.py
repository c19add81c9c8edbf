"""How many bytes a second the streams will write, for the hours that a disk lasts."""

from __future__ import annotations

from dataclasses import dataclass

_DECLARED_S = 10.0
"""Seconds of measurement that a declaration weighs as much as."""
_MEMORY_S = 60.0


@dataclass(slots=True)
class _Mean:
    per_s: float
    weight_s: float = _DECLARED_S
    counted: tuple[int, int] | None = None  # when, and how many bytes there were


class VolumeForecast:
    """Mean bytes per second of about a minute, which are kept from one session to the next.

    A forecast begins with what a stream declares, and approaches what is measured. So it does not
    jump where a session begins or ends, nor with each keyframe::

        forecast = VolumeForecast()
        forecast.count(now_ns, "camera", 1_200_000, declared=900_000.0)
        forecast.rate("camera", declared=900_000.0)
    """

    def __init__(self) -> None:
        self._means: dict[str, _Mean] = {}

    def count(self, now_ns: int, stream: str, nbytes: int, declared: float) -> None:
        """Take how many bytes a stream has; a smaller count than before (a new part) restarts.

        Args:
            now_ns: CLOCK_MONOTONIC.
            stream: its name.
            nbytes: bytes so far.
            declared: bytes per second that the stream declares.
        """
        mean = self._means.setdefault(stream, _Mean(declared))
        before, mean.counted = mean.counted, (now_ns, nbytes)
        if before is None or nbytes < before[1] or now_ns <= before[0]:
            return
        seconds = (now_ns - before[0]) / 1e9
        mean.weight_s = min(mean.weight_s + seconds, _MEMORY_S)
        share = min(1.0, seconds / mean.weight_s)
        mean.per_s += share * ((nbytes - before[1]) / seconds - mean.per_s)

    def pause(self) -> None:
        """Forget the counts and keep the means: a session begins or ends."""
        for mean in self._means.values():
            mean.counted = None

    def rate(self, stream: str, declared: float) -> float:
        """Bytes per second; what is declared where nothing was measured."""
        mean = self._means.get(stream)
        return declared if mean is None else mean.per_s
