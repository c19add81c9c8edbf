"""RTP packets over UDP, in the order of their sequence numbers (RFC 3550, section 5.1)."""

from __future__ import annotations

_MOST_HELD = 64
_LONGEST_NS = 100_000_000
_RESTART = 3000  # a larger step is a new sequence: MAX_DROPOUT of RFC 3550, appendix A.1


class PacketOrder:
    """Restores the order of one stream's packets; what does not come in time is a gap.

    >>> order = PacketOrder()
    >>> for t_ns, packet in order.feed(packet, t_ns):
    ...     ...                                   # in order; a repeated or late packet never comes

    A packet that follows a gap is held for up to 64 packets, or 0.1 s of arrival.
    """

    def __init__(self) -> None:
        self._expected: int | None = None
        self._held: dict[int, tuple[int, bytes]] = {}  # by sequence number

    def feed(self, packet: bytes, t_ns: int) -> list[tuple[int, bytes]]:
        """Return the packets that are in order now, each with its arrival.

        Args:
            packet: an RTP packet; one without a sequence number passes.
            t_ns: its arrival.
        """
        if len(packet) < 4:
            return [(t_ns, packet)]
        number = int.from_bytes(packet[2:4], "big")
        if self._expected is None:
            self._expected = number
        step = _step(self._expected, number)
        made: list[tuple[int, bytes]] = []
        if abs(step) > _RESTART:
            made = self._release_all()
            self._expected, step = number, 0
        if step < 0:
            return made
        self._held.setdefault(number, (t_ns, packet))
        made += self._in_order()
        while self._held and (
            len(self._held) > _MOST_HELD or t_ns - self._oldest_ns() > _LONGEST_NS
        ):
            self._expected = self._next_held()
            made += self._in_order()
        return made

    def _in_order(self) -> list[tuple[int, bytes]]:
        assert self._expected is not None
        made = []
        while (item := self._held.pop(self._expected, None)) is not None:
            made.append(item)
            self._expected = (self._expected + 1) & 0xFFFF
        return made

    def _release_all(self) -> list[tuple[int, bytes]]:
        made = []
        while self._held:
            self._expected = self._next_held()
            made += self._in_order()
        return made

    def _next_held(self) -> int:
        expected = self._expected
        assert expected is not None
        return min(self._held, key=lambda number: _step(expected, number))

    def _oldest_ns(self) -> int:
        return min(t_ns for t_ns, _ in self._held.values())


def _step(expected: int, number: int) -> int:
    """Numbers from the expected one on; negative: before it."""
    return (number - expected + 0x8000) % 0x10000 - 0x8000
