"""Reports of losses while a session is recorded, at most one per stream and interval.

::

    watch = LossWatch()
    for stream, sentence in watch.update(now_ns, {"imu": {"lost": {"refused": 7}}}):
        say(f"{stream}: {sentence}")            # lost 7 samples (refused)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PAUSE_NS = 10_000_000_000
"""Interval between two reports of a stream that keeps losing samples."""

_Key = tuple[str, str]
_LOST, _UNCOUNTED, _INCOMPLETE = "sample", "interval of unknown count", "incomplete sample"
"""What is counted, by cause: the first part of a key."""


class LossWatch:
    """Compares the writer's accounts of losses with the losses already reported."""

    def __init__(self) -> None:
        self._reported: dict[str, tuple[dict[_Key, int], int]] = {}  # losses, and when

    def reset(self) -> None:
        """Forget all accounts: a session begins or ends."""
        self._reported.clear()

    def update(
        self, now_ns: int, streams: Mapping[str, Mapping[str, Any]]
    ) -> list[tuple[str, str]]:
        """Take the accounts; returns (stream, sentence) for each loss to report now.

        Args:
            now_ns: CLOCK_MONOTONIC.
            streams: by stream ``lost``, samples by cause, ``unknown_losses``, intervals of unknown
                count, and ``incomplete``, samples that lack parts by cause.
        """
        reported = []
        for name, stream in streams.items():
            before, before_ns = self._reported.get(name, ({}, now_ns - PAUSE_NS))
            lost = {(_LOST, cause): n for cause, n in (stream.get("lost") or {}).items()}
            if intervals := stream.get("unknown_losses"):
                lost[_UNCOUNTED, ""] = intervals
            for cause, counts in (stream.get("incomplete") or {}).items():
                lost[_INCOMPLETE, cause] = counts["samples"]
            news = {cause: n - before.get(cause, 0) for cause, n in lost.items()}
            if any(n < 0 for n in news.values()) or before.keys() - lost.keys():
                news = lost  # a new part: its account starts at zero
            if now_ns - before_ns < PAUSE_NS or not any(news.values()):
                continue
            self._reported[name] = lost, now_ns
            reported.append((name, _sentence({cause: n for cause, n in news.items() if n})))
        return reported


def _sentence(news: Mapping[_Key, int]) -> str:
    lost: list[str] = []
    incomplete: list[str] = []
    for (what, cause), count in news.items():
        plural = what.replace("sample", "samples").replace("interval", "intervals")
        text = f"{count} {what if count == 1 else plural}" + (f" ({cause})" if cause else "")
        (incomplete if what == _INCOMPLETE else lost).append(text)
    return ", ".join([*(["lost " + ", ".join(lost)] if lost else []), *incomplete])
