"""The log that TI's recorder writes beside a capture: which packets it replaced with zeros.

DCA1000EVM_CLI_Record writes ``PREFIX_Raw_LogFile.csv``.  A row ``,OFFSET,BYTES,`` names lost
bytes, which are zeros in the capture; a row ``,,,OFFSET,BYTES,`` names bytes that came late and are
there.  Offsets count the bytes that the card sent.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Final

from drivers._protocols.dca1000 import PAYLOAD_BYTES

_ROW: Final = re.compile(r",(,,)?(\d{1,15}),(\d{1,15}),")
_RAW_FILE: Final = re.compile(r"(.*_Raw_)\d+\.bin")


class FilledPackets:
    """The packets of a capture that are zeros instead of data."""

    def __init__(self, path: Path) -> None:
        """Read the log beside a file of a capture; without a log, no packet is filled."""
        edges: dict[int, int] = {}
        match = _RAW_FILE.fullmatch(path.name)
        if match and (log := path.with_name(f"{match[1]}LogFile.csv")).is_file():
            for line in log.read_text("utf-8", errors="replace").splitlines():
                if row := _ROW.match(line):
                    change = -1 if row[1] else 1
                    begin, size = int(row[2]), int(row[3])
                    edges[begin] = edges.get(begin, 0) + change
                    edges[begin + size] = edges.get(begin + size, 0) - change
        self._begins: list[int] = []
        self._ends: list[int] = []
        depth = 0
        for begin, end in pairwise(sorted(edges)):
            depth += edges[begin]
            if depth > 0:
                self._begins.append(begin)
                self._ends.append(end)

    def in_frame(self, data: memoryview, position: int) -> tuple[int, int]:
        """Return the bytes of a frame that are filled, and the packets that begin in it.

        Args:
            data: the frame.
            position: of the frame in the capture.
        """
        filled = packets = 0
        at = max(0, bisect_right(self._begins, position) - 1)
        stop = position + len(data)
        while at < len(self._begins) and self._begins[at] < stop:
            begin, end = max(self._begins[at], position), min(self._ends[at], stop)
            # A log of another capture does not fit: packets of a radar are never zeros.
            if begin < end and not bytes(data[begin - position : end - position]).strip(b"\0"):
                filled += end - begin
                packets += -(-end // PAYLOAD_BYTES) - -(-begin // PAYLOAD_BYTES)
            at += 1
        return filled, packets
