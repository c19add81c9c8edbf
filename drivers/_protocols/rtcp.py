"""RTCP sender reports: the sender's clock of RTP's timestamps (RFC 3550, section 6.4.1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SENDER_REPORT = 200
_BYE = 203
_TO_1970_S = 2_208_988_800  # from NTP's epoch, 1900


@dataclass(frozen=True, slots=True)
class SenderReport:
    """One report.

    Attributes:
        ssrc: of the stream.
        time_ns: the sender's clock in epoch ns; of a sender without a calendar, ns of its clock.
        timestamp: RTP's timestamp of the same moment.
    """

    ssrc: int
    time_ns: int
    timestamp: int


def parse_rtcp(data: bytes) -> tuple[list[SenderReport], bool]:
    """The sender reports of a compound packet, and whether it ends the stream (BYE).

    What is no RTCP, or is cut short, is passed over.  Reports without a time are left out.
    """
    reports, ends, at = [], False, 0
    while at + 4 <= len(data) and data[at] >> 6 == 2:
        kind, size = data[at + 1], 4 + 4 * int.from_bytes(data[at + 2 : at + 4], "big")
        ends |= kind == _BYE
        if kind == _SENDER_REPORT and size >= 28 and at + 20 <= len(data):
            ssrc, seconds, fraction, timestamp = struct.unpack_from(">IIII", data, at + 4)
            if seconds or fraction:
                seconds -= _TO_1970_S if seconds >= _TO_1970_S else 0
                time_ns = seconds * 1_000_000_000 + (fraction * 1_000_000_000 >> 32)
                reports.append(SenderReport(ssrc, time_ns, timestamp))
        at += size
    return reports, ends


class SenderClock:
    """The sender's times of RTP's timestamps, by its latest report.

    >>> clock = SenderClock(clock_hz=90_000)
    >>> clock.time_ns(1234)               # 0: no report has come
    0
    >>> clock.report = SenderReport(1, 5_000_000_000, 0xFFFFFFFF)
    >>> clock.time_ns(89_999)             # a second later, and timestamps wrap
    6000000000

    Args:
        clock_hz: rate of the timestamps.

    Attributes:
        report: the latest one; None before the first.
    """

    def __init__(self, clock_hz: int) -> None:
        self._clock_hz = clock_hz
        self.report: SenderReport | None = None
        self._outdated: SenderReport | None = None

    def restart(self) -> None:
        """Timestamps begin anew: what was reported does not hold for them."""
        self._outdated = self.report

    def time_ns(self, timestamp: int) -> int:
        """The sender's time of a timestamp, ns; 0 where it is unknown."""
        if self.report is None or self.report is self._outdated:
            return 0
        step = (timestamp - self.report.timestamp + (1 << 31)) % (1 << 32) - (1 << 31)
        return max(0, self.report.time_ns + step * 1_000_000_000 // self._clock_hz)
