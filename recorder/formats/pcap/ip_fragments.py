"""Reassembly of IP datagrams from fragments, as in a receiving host (RFC 791, RFC 8200).

A fragment's identification repeats after some seconds at a lidar's rate.  The limits are
therefore those of Linux (`ipfrag_time`, `ipfrag_max_dist`): a datagram is given up 30 s after its
first fragment, or once more than 64 other fragments of its sender have followed its last fragment.
A fragment that overlaps the fragments before it, and repeats none of them, begins another datagram.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

AGE_NS: Final = 30_000_000_000
DISTANCE: Final = 64
_MOST_BYTES: Final = 65_535
_OPEN_LIMIT: Final = 64  # incomplete datagrams that are stored
_SENDER_LIMIT: Final = 1024
_WHOLE_LIMIT: Final = 16  # whole datagrams whose fragments may be repeated


class Fragment(NamedTuple):
    """A fragment of a UDP datagram.

    Attributes:
        source, destination: IP addresses, 4 or 16 bytes.
        ident: the identification, which all fragments of the datagram have.
        position: of `body` in the datagram, bytes.
        more: it is not the last one.
        body: UDP header and data, or a part of them.
    """

    source: bytes
    destination: bytes
    ident: bytes
    position: int
    more: bool
    body: memoryview


_Key = tuple[bytes, bytes, bytes]


@dataclass(slots=True)
class PartialDatagram:
    """The received fragments of a datagram.

    Attributes:
        source, destination: IP addresses.
        parts: bodies by position.
        size: bytes of the whole datagram; None: the last fragment has not come.
        begin_ns: stamp of the first fragment.
        repeats: the parts of the whole datagram before it with the same identification.
        last: number of its last fragment among those of its sender.
        cause: why a fragment is not usable, if one is not.
    """

    source: bytes
    destination: bytes
    begin_ns: int
    repeats: dict[int, bytes]
    parts: dict[int, bytes] = field(default_factory=dict)
    size: int | None = None
    last: int = 0
    cause: str | None = None

    def join(self) -> memoryview:
        """Return the bodies one after the other."""
        return memoryview(b"".join(self.parts[at] for at in sorted(self.parts)))

    @property
    def is_repetition(self) -> bool:
        """True if all fragments came before, in a whole datagram: a capture of two links."""
        return all(self.repeats.get(at) == part for at, part in self.parts.items())


class Fragments:
    """Reassembly of incomplete datagrams.

    >>> fragments = Fragments()
    >>> whole = fragments.add(fragment, t_ns)   # None while fragments are missing
    >>> whole.join()
    >>> fragments.given_up                      # datagrams that never became whole; clear it
    >>> fragments.finish()                      # at the end: also the datagrams that are open
    """

    def __init__(self) -> None:
        self._open: dict[_Key, PartialDatagram] = {}
        self._whole: dict[_Key, dict[int, bytes]] = {}
        self._counts: dict[bytes, int] = {}
        self.given_up: list[PartialDatagram] = []

    def add(
        self, fragment: Fragment, t_ns: int, cause: str | None = None
    ) -> PartialDatagram | None:
        """Add a fragment; return the complete datagram if this was its last missing fragment.

        Args:
            fragment: its body has the bytes that were sent.
            t_ns: its stamp.
            cause: why the body is not usable; None: it is.
        """
        key, body = fragment[:3], bytes(fragment.body)
        if not body:
            return None
        # Senders without open datagrams are forgotten, so that memory is bounded.
        if len(self._counts) > _SENDER_LIMIT:
            senders = {each.source for each in self._open.values()} | {fragment.source}
            self._counts = {each: self._counts.get(each, 0) for each in senders}
        number = self._counts[fragment.source] = self._counts.get(fragment.source, 0) + 1
        self._expire(t_ns)
        datagram = self._open.get(key)
        if datagram is not None:
            if datagram.parts.get(fragment.position) == body:
                return None
            if not _fits(datagram, fragment):
                self._give_up(key)
                datagram = None
        if datagram is None:
            if len(self._open) >= _OPEN_LIMIT:
                self._give_up(next(iter(self._open)))
            repeats = self._whole.pop(key, {})
            datagram = PartialDatagram(fragment.source, fragment.destination, t_ns, repeats)
            self._open[key] = datagram
        datagram.parts[fragment.position] = body
        datagram.last = number
        datagram.cause = datagram.cause or cause
        if not fragment.more:
            datagram.size = fragment.position + len(body)
        if datagram.size is None or sum(map(len, datagram.parts.values())) < datagram.size:
            return None
        del self._open[key]
        # A second link may repeat the fragments: `is_repetition` compares them with these.
        self._whole[key] = datagram.parts
        if len(self._whole) > _WHOLE_LIMIT:
            del self._whole[next(iter(self._whole))]
        return datagram

    def finish(self) -> None:
        """Give up the datagrams that are still open at the end of a capture."""
        for key in list(self._open):
            self._give_up(key)

    def _expire(self, t_ns: int) -> None:
        for key, datagram in list(self._open.items()):
            distance = self._counts[datagram.source] - datagram.last
            # A capture's clock may step back, too: then nothing is known about the age.
            if distance > DISTANCE or abs(t_ns - datagram.begin_ns) > AGE_NS:
                self._give_up(key)

    def _give_up(self, key: _Key) -> None:
        datagram = self._open.pop(key)
        if not datagram.is_repetition:
            self.given_up.append(datagram)


def _fits(datagram: PartialDatagram, fragment: Fragment) -> bool:
    """Return whether a fragment lies where no other fragment lies, inside the datagram."""
    begin, end = fragment.position, fragment.position + len(fragment.body)
    if end > (_MOST_BYTES if datagram.size is None else datagram.size):
        return False
    for first, part in datagram.parts.items():
        is_before, is_behind = first + len(part) <= begin, end <= first
        if not is_before and (not is_behind or not fragment.more):
            return False
    return True
