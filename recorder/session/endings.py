"""The reasons for which sessions end, in words."""

from __future__ import annotations

ENDS = {
    "duration": "at its duration",
    "sources": "when every source that can end had ended",
    "signal": "by a signal",
    "stop": "by `recorder stop`",
    "clip": "where it was cut",
    "shutdown": "when the daemon ended",
    "split": "continued in the next part",
    "overtime": "after its duration: sources played slower than time",
    "floor": "early: the disk is nearly full",
    "sealed": "early: the disk failed",
    "killed": "early",
}
"""For people, why a session ended."""
