"""RTP packets of H.264 (RFC 6184, packetization mode 1) and RTCP's sender reports (RFC 3550)."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from recorder.codecs.h264 import nal_units, read_nal_type

PAYLOAD_TYPE: Final = 96
CLOCK_HZ: Final = 90_000
PAYLOAD_BYTES: Final = 1400
"""Largest payload: the packet with all headers fits into an Ethernet frame."""

_STAP_A, _FU_A = 24, 28
_SEQUENCE_SET, _PICTURE_SET = 7, 8
_NTP_1970_S = 2_208_988_800


def split_payloads(unit: bytes) -> Iterator[bytes]:
    """Split an access unit into payloads: small NAL units joined (STAP-A), large ones cut (FU-A).

    Args:
        unit: Annex B.
    """
    small: list[bytes] = []
    for nal in nal_units(unit):
        if sum(2 + len(n) for n in [*small, nal]) < PAYLOAD_BYTES:
            small.append(nal)
            continue
        yield from _together(small)
        small = []
        if len(nal) < PAYLOAD_BYTES:
            small.append(nal)
        else:
            yield from _cut(nal)
    yield from _together(small)


def _together(nals: Sequence[bytes]) -> Iterator[bytes]:
    if len(nals) == 1:
        yield nals[0]
    elif nals:
        head = max(nal[0] & 0x60 for nal in nals) | _STAP_A
        yield bytes((head,)) + b"".join(len(nal).to_bytes(2, "big") + nal for nal in nals)


def _cut(nal: bytes) -> Iterator[bytes]:
    head, room = (nal[0] & 0xE0) | _FU_A, PAYLOAD_BYTES - 2
    for at in range(1, len(nal), room):
        piece = nal[at : at + room]
        first, last = at == 1, at + room >= len(nal)
        yield bytes((head, first << 7 | last << 6 | nal[0] & 31)) + piece


class RtpSender:
    """Sender that numbers its packets.

    Args:
        ssrc: of the stream.
        sequence: of its first packet.
    """

    def __init__(self, ssrc: int, sequence: int) -> None:
        self._ssrc = ssrc
        self._sequence = sequence
        self._packets = self._bytes = 0

    def packets(self, unit: bytes, timestamp: int) -> list[bytes]:
        """Return the packets of an access unit; the last one has the marker."""
        parts = list(split_payloads(unit))
        made = []
        for k, part in enumerate(parts):
            kind = PAYLOAD_TYPE | (128 if k == len(parts) - 1 else 0)
            made.append(
                struct.pack(">BBHII", 0x80, kind, self._sequence, timestamp, self._ssrc) + part
            )
            self._sequence = (self._sequence + 1) & 0xFFFF
            self._packets += 1
            self._bytes += len(part)
        return made

    def report(self, time_ns: int, timestamp: int) -> bytes:
        """Return a sender report: the sender's time, epoch ns, of a timestamp."""
        seconds, rest_ns = divmod(time_ns, 1_000_000_000)
        fraction = (rest_ns << 32) // 1_000_000_000
        return struct.pack(
            ">BBHIIIIII", 0x80, 200, 6, self._ssrc, seconds + _NTP_1970_S & 0xFFFFFFFF, fraction,
            timestamp, self._packets & 0xFFFFFFFF, self._bytes & 0xFFFFFFFF,
        )  # fmt: skip


def make_session_description(keyframe: bytes, fps: float) -> str:
    """Return the SDP of a video with a keyframe's parameter sets."""
    sets = [
        nal for nal in nal_units(keyframe) if read_nal_type(nal) in (_SEQUENCE_SET, _PICTURE_SET)
    ]
    texts = ",".join(base64.b64encode(nal).decode() for nal in sets)
    profile = next(nal[1:4].hex() for nal in sets if read_nal_type(nal) == _SEQUENCE_SET)
    lines = (
        "v=0", "o=- 0 0 IN IP4 127.0.0.1", "s=emulated camera", "c=IN IP4 0.0.0.0", "t=0 0",
        "a=control:*", f"m=video 0 RTP/AVP {PAYLOAD_TYPE}",
        f"a=rtpmap:{PAYLOAD_TYPE} H264/{CLOCK_HZ}",
        f"a=fmtp:{PAYLOAD_TYPE} packetization-mode=1;profile-level-id={profile};"
        f"sprop-parameter-sets={texts}",
        f"a=framerate:{fps:g}", "a=control:trackID=0",
    )  # fmt: skip
    return "\r\n".join(lines) + "\r\n"
