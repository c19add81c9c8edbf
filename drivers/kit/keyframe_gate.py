"""Rule that a session of video begins, and continues after a loss, only with a keyframe.

A pure state machine for one stream whose samples are not all decodable alone
(`recorder.codecs.streams.StreamSpec.keyed`)::

    gate = KeyframeGate(spec)
    admitted, session = gate.admit(item, session)
    gate.record_refusal()                          # the ring refused the item

- Samples before a session's first keyframe belong to no session, as samples before its start do.
- Samples between a loss and the next keyframe cannot be decoded without the lost pictures: each is
  counted as lost, cause ``corrupt``.
- At a seam the session before gets the samples up to the next keyframe, so that each part begins
  with one.  A stream that has none for `SEAM_PATIENCE_NS` crosses without one.
"""

from __future__ import annotations

from drivers.kit.driver import Item, Lost, Sample
from recorder.bus.messages import AnnouncedSession as Session
from recorder.codecs import CHANNEL_FORMATS
from recorder.codecs.streams import StreamSpec

SEAM_PATIENCE_NS = 8_000_000_000
"""Longest wait for a keyframe after a seam; the writer closes the session before after 10 s."""
_REASON = "refers to a picture that is lost, or of another session"


class KeyframeGate:
    """Gate of one stream's samples; see the module.

    Args:
        spec: of a stream with a channel whose format is keyed.
    """

    def __init__(self, spec: StreamSpec) -> None:
        (channel,) = [c for c in spec.channels if CHANNEL_FORMATS[c.format].keyed]
        self._channel = channel.name
        self._starts = CHANNEL_FORMATS[channel.format].can_start
        self._session: Session | None = None
        self._waits = False  # for a keyframe
        self._counts = False  # samples before the keyframe are lost

    def is_key(self, sample: Sample) -> bool:
        """Return whether a decoder can begin with a sample."""
        return self._starts(sample.data[self._channel][0])

    def crosses(self, item: Item, seam_ns: int) -> bool:
        """Return whether an item from behind a seam belongs to the session that begins there."""
        if isinstance(item, Sample):
            return self.is_key(item) or int(item.t_ns[-1]) >= seam_ns + SEAM_PATIENCE_NS
        return False

    def admit(self, item: Item, session: Session | None) -> tuple[Item, Session | None]:
        """Return the item, or the loss that replaces it, with its session, if any.

        Args:
            item: a sample alone, a state, or a loss.
            session: the session that is open.
        """
        if session is None:
            self._session = None
            return item, None
        if self._session is None or session.key != self._session.key:
            self._waits = True
            self._counts = self._session is not None and session.continues(self._session)
            self._session = session
        if isinstance(item, Sample) and self.is_key(item):
            self._waits = False
        if not self._waits:
            if isinstance(item, Lost) and item.count != 0:
                self._waits = self._counts = True
            return item, session
        if isinstance(item, Lost):
            return item, session if self._counts else None
        if not isinstance(item, Sample):
            return item, session
        if not self._counts:
            return item, None
        t_ns = int(item.t_ns[-1])
        return Lost(item.stream, t_ns, "corrupt", 1, detail={"reason": _REASON}), session

    def record_refusal(self) -> None:
        """Wait for the next keyframe, because the item was not recorded."""
        self._waits = self._counts = True
