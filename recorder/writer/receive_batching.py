"""When the receiving thread may rest between two turns.

Messages that arrive during a rest are handled together: waking up with cold caches for every
message costs several times the work itself.  A driver that sends much would use up its window
within a rest and then wait for the end of the rest.
"""

from __future__ import annotations

from recorder.contract.clock import Clock

REST_S = 0.02
_REST_NS = round(REST_S * 1e9)
_LITTLE = 16  # messages; a socket queues twice as many of every driver
_LITTLE_BYTES = 2_000_000  # in the time of a rest: 100 MB/s


class ReceiveBatching:
    """Decides after every turn whether to rest.

    >>> rest = ReceiveBatching(clock)
    >>> if rest.earned(messages=3, size=70_000):
    ...     clock.wait(hurry, REST_S)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy = False
        self._since_ns = 0
        self._bytes = 0

    def earned(self, messages: int, size: int) -> bool:
        """Whether a rest may follow a turn with this number of messages and bytes."""
        if not self._busy:
            if size >= _LITTLE_BYTES:
                self._busy, self._bytes = True, 0
                self._since_ns = self._clock.monotonic_ns()
            return 0 < messages < _LITTLE and not self._busy
        self._bytes += size
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._since_ns >= _REST_NS:
            self._busy = self._bytes * _REST_NS >= _LITTLE_BYTES * (now_ns - self._since_ns)
            self._since_ns, self._bytes = now_ns, 0
        return False
