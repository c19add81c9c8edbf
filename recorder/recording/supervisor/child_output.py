"""Output of a child process for users: one line at a time, cleaned and limited.

::

    printed = ChildOutput()
    for line in printed.feed(os.read(fd, 65536), now_s):    # bytes as received
        say(line)
    for line in printed.tick(now_s):                        # regularly, even without output
        say(line)
    for line in printed.end(failed=True):                   # the process has ended
        say(line)

A process may print anything at any rate: no call waits, and memory is bounded.
"""

from __future__ import annotations

import re
from collections import deque

from recorder.common.secret_masking import mask_passwords

LONGEST = 400
"""Length at which a line is cut, in characters."""
BURST = 100
"""Number of lines that are passed on at any rate."""
PER_S = 2.0
"""Lines per second that are passed on after a burst."""
LAST = 30
"""Number of last lines that are always passed on if a process fails, such as a traceback."""

_END = re.compile(rb"[\r\n]+")  # a progress bar ends its lines with a carriage return
_ESCAPE = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-Z\\\\^_])?")


def clean(text: str, longest: int = LONGEST) -> str:
    """Return a text as one line for a terminal and a log: no control characters, limited length.

    >>> clean("\\x1b[31mno frame\\x1b[0m in 2 s\\x07")
    'no frame in 2 s'
    """
    text = _ESCAPE.sub("", text)
    text = "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text).rstrip()
    return text if len(text) <= longest else f"{text[:longest]} ..."


class ChildOutput:
    """Filter of a process's output; times are in seconds of any monotonic clock.

    Attributes:
        last: the latest line; empty before the first.
    """

    def __init__(self) -> None:
        self.last = ""
        self._begun = bytearray()  # of the line that has not ended
        self._tokens = float(BURST)
        self._since_s: float | None = None
        self._kept_back: deque[str] = deque(maxlen=LAST)
        self._left_out = 0

    def feed(self, chunk: bytes, now_s: float) -> list[str]:
        """Take received bytes; return the lines to pass on."""
        passed: list[str] = []
        *ended, rest = _END.split(chunk)
        self._refill(now_s)
        if self._tokens < 1.0 and len(ended) > LAST:  # lines of a flood are only counted
            self._left_out += len(ended) - LAST
            ended = ended[-LAST:]
            self._begun.clear()
        for piece in ended:
            self._begin(piece)
            self._take(passed)
        self._begin(rest)
        return passed

    def tick(self, now_s: float) -> list[str]:
        """Return a line with the count of omitted lines, once the rate permits it."""
        self._refill(now_s)
        if not self._left_out or self._tokens < BURST / 10:
            return []
        self._tokens -= 1.0
        return [self._report()]

    def end(self, *, failed: bool) -> list[str]:
        """Finish the output; return the last lines, if the process has failed."""
        passed: list[str] = []
        if line := self._finish_line():
            self._keep_back(line)
        kept_back = list(self._kept_back) if failed or self._left_out == 1 else []
        self._left_out -= len(kept_back)
        if self._left_out:
            passed.append(self._report())
        self._left_out = 0
        self._kept_back.clear()
        return passed + kept_back

    def _begin(self, piece: bytes) -> None:
        # A character has up to four bytes; one byte more shows that the line was cut.
        self._begun += piece[: max(0, 4 * LONGEST + 1 - len(self._begun))]

    def _finish_line(self) -> str:
        line = mask_passwords(clean(self._begun.decode(errors="replace")))
        self._begun.clear()
        self.last = line or self.last
        return line

    def _take(self, passed: list[str]) -> None:
        if not (line := self._finish_line()):
            return
        if self._tokens < (2.0 if self._left_out else 1.0):
            self._keep_back(line)
            return
        if self._left_out:
            self._tokens -= 1.0
            passed.append(self._report())
        self._tokens -= 1.0
        passed.append(line)

    def _keep_back(self, line: str) -> None:
        self._left_out += 1
        self._kept_back.append(line)

    def _refill(self, now_s: float) -> None:
        if self._since_s is not None:
            self._tokens = min(BURST, self._tokens + (now_s - self._since_s) * PER_S)
        self._since_s = now_s

    def _report(self) -> str:
        count, self._left_out = self._left_out, 0
        self._kept_back.clear()
        return f"{count} more lines left out"
