"""Layout of this recorder's AVI files: OpenDML AVI 2.0 with one MJPG stream, of any size.

All numbers are little-endian, and chunks are padded to an even length::

    RIFF 'AVI '
      LIST 'hdrl'
        avih                     main header; dwTotalFrames counts the first RIFF only
        LIST 'strl'
          strh strf              'vids' 'MJPG', dwRate / dwScale frames per second
          indx                   super index: where each segment's ix00 is, and its frame count
        LIST 'odml'  dmlh        frames in all
      LIST 'movi'
        00dc 00dc ...            one JPEG each
        ix00                     standard index of this segment
      idx1                       the index of AVI 1.0, for the first segment
    RIFF 'AVIX'                  as many as it takes, each of about `SEGMENT_BYTES`
      LIST 'movi'  00dc ... ix00

While a segment grows, its RIFF and movi sizes are placeholders and all frame counts are 0. FFmpeg
(under OpenCV) then reads in order from the start of the frame list to the end of the file.

Sources: Microsoft, "AVI RIFF File Reference"; "OpenDML AVI File Format Extensions" 1.02, chapters
"AVIX" (2.0), "Index Locations" (3.0) and "Extended AVI Header" (5.0).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

SEGMENT_BYTES = 1 << 30
"""Length, without its index, at which a segment is closed before the frame that exceeds it."""
SUPER_ENTRIES = 4096
"""Number of entries reserved in the super index: 4 TiB in segments of `SEGMENT_BYTES`."""
DEFAULT_RATE_HZ = 30.0

PLACEHOLDER = 4
"""Size of a list that is still growing: only the four bytes of its type.

FFmpeg stops trusting the sizes and takes the file's own length as the end, so that a torn last
frame is not read; 0xFFFFFFFF there made it decode torn frames.
"""
FRAME_ID = b"00dc"
MAX_FRAME_BYTES = (1 << 31) - 1  # bit 31 of an index entry's size means "no key frame"

CHUNK = struct.Struct("<4sI")
LIST = struct.Struct("<4sI4s")
INDEX_HEAD = struct.Struct("<4sIHBBI4sQI")  # standard index, chapter 3.0: AVISTDINDEX
SUPER_ENTRY = struct.Struct("<QII")

# Offsets of header fields, in bytes from the start of the file.
RIFF_SIZE = 4
AVIH = 24
AVIH_FRAMES = AVIH + 8 + 16
STRH = 100
STRH_FRAMES = STRH + 8 + 32
STRF = 164
INDX = 212
INDX_COUNT = INDX + 8 + 4
INDX_ENTRIES = INDX + 8 + 24
_DMLH_BYTES = 248
_ODML_BYTES = 12 + 8 + _DMLH_BYTES

_HAS_INDEX, _IS_INTERLEAVED, _TRUST_CHUNK_TYPE = 0x10, 0x100, 0x800

SEGMENT_HEAD_BYTES = 24
"""Size of the RIFF and movi list headers of a segment after the first."""

Entries = npt.NDArray[np.uint32]
"""Array [n, 2]: offset of a frame's chunk from its segment's movi list, size of the JPEG."""


@dataclass(frozen=True, slots=True)
class AviLayout:
    """Parameters of a file's header; the rest of the file follows from the frames.

    Attributes:
        width, height: size of the frames in pixels.
        rate: frames per second.
        super_entries: number of segments that the super index can hold.
    """

    width: int
    height: int
    rate: Fraction
    super_entries: int = SUPER_ENTRIES

    @classmethod
    def of(
        cls, width: int, height: int, rate_hz: float | None, super_entries: int = SUPER_ENTRIES
    ) -> AviLayout:
        """Make the layout for a nominal rate (30 Hz if None)."""
        rate = Fraction(rate_hz or DEFAULT_RATE_HZ).limit_denominator(100_000)
        return cls(width, height, max(rate, Fraction(1, 100_000)), super_entries)

    @property
    def movi(self) -> int:
        """Offset of the first movi list."""
        return INDX_ENTRIES + SUPER_ENTRY.size * self.super_entries + _ODML_BYTES

    @property
    def header_bytes(self) -> int:
        """Offset of the first frame's chunk."""
        return self.movi + LIST.size

    def header(self) -> bytes:
        """Return the header of a file without frames, with placeholders for sizes that may grow."""
        frame_bytes = min(self.width * self.height * 3, 0xFFFFFFFF)
        avih = struct.pack(
            "<14I",
            min(round(1_000_000 / self.rate), 0xFFFFFFFF),
            0,  # dwMaxBytesPerSec: unknown
            0,
            _HAS_INDEX | _IS_INTERLEAVED | _TRUST_CHUNK_TYPE,
            0,  # dwTotalFrames
            0,
            1,
            frame_bytes,  # dwSuggestedBufferSize
            self.width,
            self.height,
            *(0, 0, 0, 0),
        )
        strh = struct.pack(
            "<4s4sIHH8I4H",
            *(b"vids", b"MJPG", 0, 0, 0, 0),
            self.rate.denominator,
            self.rate.numerator,
            *(0, 0),  # dwStart, dwLength
            frame_bytes,
            0xFFFFFFFF,  # dwQuality: the default one
            0,  # dwSampleSize: varies
            *(0, 0, min(self.width, 0x7FFF), min(self.height, 0x7FFF)),
        )
        strf = struct.pack(
            "<IiiHH4s5I", 40, self.width, self.height, 1, 24, b"MJPG", frame_bytes, 0, 0, 0, 0
        )
        indx = struct.pack("<HBBI4s3I", 4, 0, 0, 0, FRAME_ID, 0, 0, 0)
        indx += bytes(SUPER_ENTRY.size * self.super_entries)
        strl = b"strl" + chunk(b"strh", strh) + chunk(b"strf", strf) + chunk(b"indx", indx)
        odml = b"odml" + chunk(b"dmlh", bytes(_DMLH_BYTES))
        hdrl = b"hdrl" + chunk(b"avih", avih) + chunk(b"LIST", strl) + chunk(b"LIST", odml)
        return (
            LIST.pack(b"RIFF", PLACEHOLDER, b"AVI ")
            + chunk(b"LIST", hdrl)
            + LIST.pack(b"LIST", PLACEHOLDER, b"movi")
        )

    def segment_head(self) -> bytes:
        """Return the RIFF and movi list headers of a further segment."""
        return LIST.pack(b"RIFF", PLACEHOLDER, b"AVIX") + LIST.pack(b"LIST", PLACEHOLDER, b"movi")

    def count_patches(self, total: int, in_first: int) -> list[tuple[int, bytes]]:
        """Return the patches (offset, bytes) that set the frame counts."""
        return [
            (AVIH_FRAMES, in_first.to_bytes(4, "little")),
            (STRH_FRAMES, total.to_bytes(4, "little")),
            (self.movi - _DMLH_BYTES, total.to_bytes(4, "little")),
        ]


def chunk(name: bytes, data: bytes) -> bytes:
    """Make a RIFF chunk; lists pass their type as the first four bytes of `data`."""
    return CHUNK.pack(name, len(data)) + data


@dataclass(slots=True)
class Segment:
    """One RIFF of a file, as its headers describe it.

    Attributes:
        riff: offset of the RIFF chunk (0 for the first).
        movi: offset of its movi list.
        count: number of its frames.
        frames_end: offset after the last frame's chunk, padding included.
    """

    riff: int
    movi: int
    count: int
    frames_end: int

    @property
    def index_bytes(self) -> int:
        """Length of the segment's ix00 chunk."""
        return INDEX_HEAD.size + 8 * self.count

    @property
    def end(self) -> int:
        """Offset after the closed segment, with its indexes."""
        end = self.frames_end + self.index_bytes
        return end if self.riff else end + CHUNK.size + 16 * self.count

    def index(self, entries: Entries) -> bytes:
        """Return the chunks that close the segment: ix00, and idx1 in the first segment."""
        # Offsets of ix00 name a chunk's data, those of idx1 its header, relative to the list's
        # type field, 8 bytes into the list.
        standard = entries + np.array([8, 0], np.uint32)
        head = INDEX_HEAD.pack(
            *(b"ix00", self.index_bytes - 8, 2, 0, 1, self.count, FRAME_ID, self.movi, 0)
        )
        index = head + standard.astype("<u4").tobytes()
        if self.riff:
            return index
        old = np.empty((self.count, 4), "<u4")
        old[:, 0] = int.from_bytes(FRAME_ID, "little")
        old[:, 1] = 0x10  # AVIIF_KEYFRAME
        old[:, 2] = entries[:, 0] - 8
        old[:, 3] = entries[:, 1]
        return index + chunk(b"idx1", old.tobytes())

    def size_patches(self, closed: bool) -> list[tuple[int, bytes]]:
        """Return the patches (offset, bytes) that set the sizes of the segment's two lists."""
        riff = self.end - self.riff - 8 if closed else PLACEHOLDER
        movi = self.frames_end + self.index_bytes - self.movi - 8 if closed else PLACEHOLDER
        return [
            (self.riff + 4, riff.to_bytes(4, "little")),
            (self.movi + 4, movi.to_bytes(4, "little")),
        ]

    def super_entry(self) -> bytes:
        """Return the segment's entry of the super index."""
        return SUPER_ENTRY.pack(self.frames_end, self.index_bytes, self.count)
