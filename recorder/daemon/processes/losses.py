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

_UNCOUNTED = ""


class LossWatch:
    """Compares the writer's accounts of losses with the losses already reported."""

    def __init__(self) -> None:
        self._reported: dict[str, tuple[dict[str, int], int]] = {}  # losses, and when

    def reset(self) -> None:
        """Forget all accounts: a session begins or ends."""
        self._reported.clear()

    def update(
        self, now_ns: int, streams: Mapping[str, Mapping[str, Any]]
    ) -> list[tuple[str, str]]:
        """Take the accounts; returns (stream, sentence) for each loss to report now.

        Args:
            now_ns: CLOCK_MONOTONIC.
            streams: by stream ``lost``, samples by cause, and ``unknown_losses``, intervals of
                unknown count.
        """
        reported = []
        for name, stream in streams.items():
            before, before_ns = self._reported.get(name, ({}, now_ns - PAUSE_NS))
            lost = dict(stream.get("lost") or {})
            if intervals := stream.get("unknown_losses"):
                lost[_UNCOUNTED] = intervals
            news = {cause: n - before.get(cause, 0) for cause, n in lost.items()}
            if any(n < 0 for n in news.values()) or before.keys() - lost.keys():
                news = lost  # a new part: its account starts at zero
            if now_ns - before_ns < PAUSE_NS or not any(news.values()):
                continue
            self._reported[name] = lost, now_ns
            reported.append((name, _sentence({cause: n for cause, n in news.items() if n})))
        return reported


def _sentence(news: Mapping[str, int]) -> str:
    parts = []
    for cause, count in news.items():
        what = "sample" if cause else "interval of unknown count"
        if count > 1:
            what = "samples" if cause else "intervals of unknown count"
        parts.append(f"{count} {what}" + (f" ({cause})" if cause else ""))
    return "lost " + ", ".join(parts)
