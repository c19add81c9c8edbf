"""Assembly of a radar's frames from the packets of a DCA1000EVM, and counts of missing data.

The card cuts the stream of frames into packets of equal size without regard to the ends of frames.
Most frames therefore begin and end inside a packet, and a frame's last bytes arrive with the first
bytes of the next frame.  Packet number n (from 1) holds the bytes from ``(n - 1) * 1456`` on.  The
packet's byte count repeats this position: a packet whose number and byte count disagree is damaged
and is discarded.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.mmwave.packets import (
    COUNT_MASK,
    HEADER_BYTES,
    NUMBER_MASK,
    PACKET_BYTES,
    PAYLOAD_BYTES,
    packet_headers,
)
from recorder.common.errors import ProtocolError

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

WINDOW: Final = 128
"""Largest number of packets by which a used packet may be late."""

_USELESS: Final = 1024  # consecutive unusable packets that mean another sender or a new count
_LONGEST_GAP: Final = 1 << 22  # packets, 6 GB: minutes at any rate of the card
_HALF: Final = 1 << 31
_SURE_FRAMES: Final = 8  # frames at the new pace before a gap counts as omitted frames


@dataclass(frozen=True, slots=True)
class AssembledFrame:
    """A frame of which at least one byte was received.

    Attributes:
        index: from the capture's start.
        t_ns: arrival of the last packet that ends in the frame; without such a packet, the arrival
            of the packet that continues into the next frame.  The card holds a frame's last bytes
            until a packet is full, so that packet often arrives a frame period later.
        data: u1 [frame_bytes], zeros for missing bytes.  The caller may keep the array.
        bytes_missing: 0: the frame is complete.
        packets_lost: packets beginning in the frame that were not received.
        packets_corrupt: packets that arrived damaged; they are not counted in `packets_lost`.
    """

    index: int
    t_ns: int
    data: Bytes
    bytes_missing: int = 0
    packets_lost: int = 0
    packets_corrupt: int = 0


@dataclass(frozen=True, slots=True)
class MissedFrames:
    """`count` frames from `index` on without any received byte; packets as above."""

    index: int
    count: int
    t_ns: int
    packets_lost: int
    packets_corrupt: int


class FrameClock:
    """Detector of frames that the radar omitted, which the card's numbers do not show.

    >>> clock = FrameClock(period_ns=50_000_000)
    >>> lost = clock.see(frame.index, frame.t_ns)     # 0 except after a gap

    Frames arrive at an even pace.  If a frame is late by whole periods, and the following frames
    keep their pace from there on, the radar has omitted frames.  Any other lateness is a delay.

    Args:
        period_ns: from frame to frame.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._offset_ns: int | None = None  # t_ns of frame 0, extrapolated from the last frame
        self._gap: tuple[int, int] | None = None  # omitted frames, and the offset after the gap
        self._frames = 0  # number of frames since the gap

    def see(self, index: int, t_ns: int) -> int:
        """Process a frame's stamp; return the number of omitted frames once it is certain."""
        period_ns, last_ns = self._period_ns, self._offset_ns
        offset_ns = self._offset_ns = t_ns - index * period_ns
        if last_ns is None:
            return 0
        near_ns = period_ns * 3 // 20
        if self._gap is not None:
            lost, behind_ns = self._gap
            self._frames += 1
            if abs(offset_ns - behind_ns) > near_ns:
                self._gap = None
            elif self._frames == _SURE_FRAMES:
                self._gap = None
                return lost
        late_ns = offset_ns - last_ns
        lost = round(late_ns / period_ns)
        if lost > 0 and abs(late_ns - lost * period_ns) <= near_ns:
            self._gap, self._frames = (lost, offset_ns), 0
        return 0


class _Open:
    """An incomplete frame."""

    __slots__ = ("data", "got", "t_end_ns", "t_ns")

    def __init__(self, frame_bytes: int) -> None:
        self.data = np.empty(frame_bytes, np.uint8)
        self.got = 0
        self.t_ns = 0  # arrival of a packet that continues into the next frame
        self.t_end_ns = 0  # arrival of the last packet that ends in the frame


class FrameAssembler:
    """Assembler of packets to frames in order.

    >>> assembler = FrameAssembler(frame_bytes=786_432)
    >>> for frame in assembler.take(data, sizes, t_ns):   # arrays as in `UdpReceiver.receive`
    ...     frame.data, frame.bytes_missing

    A frame is returned as soon as it is complete, or once a packet has arrived that is `window`
    packets after the frame's end.

    Args:
        frame_bytes: size of one frame.
        window: number of packets by which a packet may be late.
        first: frame with which the capture begins.

    Attributes:
        duplicates: packets that were received before.
        reordered: packets that arrived late, but in time.
        late: packets that arrived after their frame was returned; they are also counted as lost.
        corrupt: packets of a wrong length, or with a number and a byte count that disagree.
    """

    def __init__(self, frame_bytes: int, window: int = WINDOW, first: int = 0) -> None:
        self._size, self._window = frame_bytes, window
        self._frame = first  # the next frame to return
        self._next = first * frame_bytes // PAYLOAD_BYTES  # number of the next packet, from 0
        self._begin = self._next
        self._base: int | None = None  # the card's number of packet 0
        self._open: dict[int, _Open] = {}
        # Largest difference between the oldest packet of an open frame and the newest packet.
        self._spread = frame_bytes // PAYLOAD_BYTES + window + 1024
        self._ring = 1 << (3 * self._spread).bit_length()
        self._seen = np.zeros(self._ring, np.bool_)
        self._useless = 0
        self._t_ns = 0
        self.duplicates = self.reordered = self.late = self.corrupt = 0
        self._corrupt_reported = 0

    def take(self, data: Bytes, sizes: Ints, t_ns: Ints) -> list[AssembledFrame | MissedFrames]:
        """Process packets in the order of arrival; return the frames that they complete.

        Args:
            data: u1 [n, 1466 or more], one packet per row.
            sizes: int64 [n], number of valid bytes per row.
            t_ns: int64 [n], arrivals, in order.

        Raises:
            ProtocolError: a thousand consecutive packets were unusable: the card has restarted its
                count, or the sender is not a capture card.
        """
        out: list[AssembledFrame | MissedFrames] = []
        if not len(sizes):
            return out
        if data.shape[1] < PACKET_BYTES:
            raise ValueError(f"packets need {PACKET_BYTES} bytes, rows have {data.shape[1]}")
        numbers, good = self._numbers(data, sizes)
        count = len(numbers)
        if good.all() and numbers[0] == self._next and numbers[-1] - numbers[0] == count - 1:
            steps = np.diff(numbers)
            if (steps == 1).all():
                self._useless = 0
                self._accept(int(numbers[0]), data, t_ns, out)
                self._t_ns = int(t_ns[-1])
                return out
        for begin, end in _runs(numbers, good):
            self._t_ns = int(t_ns[end - 1])
            if not good[begin]:
                self.corrupt += end - begin
                self._dismiss(end - begin)
            else:
                self._take_run(int(numbers[begin]), data[begin:end], t_ns[begin:end], out)
        return out

    def flush(self) -> list[AssembledFrame | MissedFrames]:
        """Return the incomplete frames when the capture has ended or stalled.

        Packets that the card may not have sent are not counted as lost.
        """
        out: list[AssembledFrame | MissedFrames] = []
        while self._open:
            if self._frame not in self._open:
                self._miss(min(self._open), out)
            self._give(out)
        return out

    @property
    def position(self) -> int:
        """Bytes of the capture up to the end of the last packet."""
        return self._next * PAYLOAD_BYTES

    # Packet numbers

    def _numbers(self, data: Bytes, sizes: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return numbers from 0 on, int64 without wrap, and which packets are consistent."""
        raw, counts = packet_headers(data)
        whole = sizes == PACKET_BYTES
        if self._base is None:
            # Cards in the field count from 1, as documented; a card that starts at 0 is accepted.
            base = raw - counts // PAYLOAD_BYTES
            fits = whole & ((base == 0) | (base == 1))
            if fits.any():
                self._base = int(base[fits.argmax()])
        offset = raw - (1 if self._base is None else self._base) - self._next
        numbers = self._next + (offset + _HALF & NUMBER_MASK) - _HALF
        agree = (numbers * PAYLOAD_BYTES & COUNT_MASK) == counts
        return numbers, whole & agree & (numbers >= self._begin)

    def _dismiss(self, count: int) -> None:
        self._useless += count
        if self._useless >= _USELESS:
            raise ProtocolError(
                f"{self._useless} consecutive packets do not continue at packet {self._next}: "
                f"the capture card has restarted its count, or another sender uses this port"
            )

    def _take_run(
        self, first: int, rows: Bytes, t_ns: Ints, out: list[AssembledFrame | MissedFrames]
    ) -> None:
        """Process packets of consecutive numbers, late or not."""
        if first - self._next > _LONGEST_GAP:
            self.corrupt += len(rows)
            self._dismiss(len(rows))
            return
        late = min(max(self._next - first, 0), len(rows))
        for k in range(late):
            self._take_late(first + k, rows[k : k + 1], t_ns[k : k + 1], out)
        if late < len(rows):
            self._useless = 0
            self._accept(first + late, rows[late:], t_ns[late:], out)

    def _take_late(
        self, number: int, row: Bytes, t_ns: Ints, out: list[AssembledFrame | MissedFrames]
    ) -> None:
        known = number >= self._next - self._ring
        if known and self._seen[number & (self._ring - 1)]:
            self.duplicates += 1
        elif not known or (number + 1) * PAYLOAD_BYTES <= self._frame * self._size:
            self.late += 1
        else:
            self.reordered += 1
            self._useless = 0
            self._seen[number & (self._ring - 1)] = True
            self._place(number, row, t_ns)
            self._advance(out)
            return
        self._dismiss(1)

    def _accept(
        self, first: int, rows: Bytes, t_ns: Ints, out: list[AssembledFrame | MissedFrames]
    ) -> None:
        """Process packets of consecutive numbers that begin at `_next` or later."""
        # In two steps: frames must be returned before the ring overwrites their packets' marks.
        for end in (min(first, self._next + self._spread), first):
            if end > self._next:
                self._mark(self._next, end, False)
                self._next = end
                self._close_up_to((end - self._window) * PAYLOAD_BYTES, out)
        for k in range(0, len(rows), self._spread):
            part = rows[k : k + self._spread]
            self._mark(first + k, first + k + len(part), True)
            self._next = first + k + len(part)
            self._place(first + k, part, t_ns[k : k + len(part)])
            self._advance(out)

    def _mark(self, first: int, end: int, value: bool) -> None:
        if end - first >= self._ring:
            self._seen[:] = value
            return
        a, b = first & (self._ring - 1), end & (self._ring - 1)
        if a <= b:
            self._seen[a:b] = value
        else:
            self._seen[a:] = value
            self._seen[:b] = value

    # Frames

    def _place(self, first: int, rows: Bytes, t_ns: Ints) -> None:
        """Copy packets of consecutive numbers to their places in frames not yet returned."""
        end = first + len(rows)
        index = max(first * PAYLOAD_BYTES // self._size, self._frame)
        while index * self._size < end * PAYLOAD_BYTES:
            frame = self._open.get(index)
            if frame is None:
                frame = self._open[index] = _Open(self._size)
            frame.got += _copy(frame.data, index * self._size, rows, first)
            inside = min((index + 1) * self._size // PAYLOAD_BYTES, end)  # first ending later
            begin = max(first, index * self._size // PAYLOAD_BYTES)
            if inside > begin:
                frame.t_end_ns = max(frame.t_end_ns, int(t_ns[inside - first - 1]))
            elif not frame.t_ns:
                frame.t_ns = int(t_ns[begin - first])
            index += 1

    def _advance(self, out: list[AssembledFrame | MissedFrames]) -> None:
        self._close_up_to((self._next - self._window) * PAYLOAD_BYTES, out)
        while (frame := self._open.get(self._frame)) is not None and frame.got == self._size:
            self._give(out)

    def _close_up_to(self, position: int, out: list[AssembledFrame | MissedFrames]) -> None:
        """Return all frames that end at or before a position, complete or not."""
        end = position // self._size
        while self._frame < end:
            if self._frame in self._open:
                self._give(out)
            else:
                self._miss(min([*self._open, end]), out)

    def _give(self, out: list[AssembledFrame | MissedFrames]) -> None:
        """Return the next frame, of which at least one byte was received."""
        index = self._frame
        frame = self._open.pop(index)
        self._frame += 1
        t_ns = frame.t_end_ns or frame.t_ns
        missing = self._size - frame.got
        if not missing:
            out.append(AssembledFrame(index, t_ns, frame.data))
            return
        first, end = index * self._size // PAYLOAD_BYTES, _packets(self._frame * self._size)
        seen = self._seen[np.arange(first, end) & (self._ring - 1)]
        seen[max(0, self._next - first) :] = False
        for k in np.flatnonzero(~seen).tolist():
            begin = (first + k) * PAYLOAD_BYTES - index * self._size
            frame.data[max(0, begin) : begin + PAYLOAD_BYTES] = 0
        begins = _packets(index * self._size) - first  # 1 if packet `first` began a frame earlier
        lost = int((~seen[begins : max(0, self._next - first)]).sum())
        corrupt = self._count_corrupt(lost)
        out.append(AssembledFrame(index, t_ns, frame.data, missing, lost - corrupt, corrupt))

    def _miss(self, end: int, out: list[AssembledFrame | MissedFrames]) -> None:
        """Count frames of which no byte was received."""
        begin, self._frame = self._frame, end
        lost = _packets(end * self._size) - _packets(begin * self._size)
        corrupt = self._count_corrupt(lost)
        lost -= corrupt
        if out and isinstance(before := out[-1], MissedFrames):
            out.pop()
            begin = before.index
            lost, corrupt = lost + before.packets_lost, corrupt + before.packets_corrupt
        out.append(MissedFrames(begin, end - begin, self._t_ns, lost, corrupt))

    def _count_corrupt(self, lost: int) -> int:
        """Return how many of the lost packets arrived damaged."""
        corrupt = min(lost, self.corrupt - self._corrupt_reported)
        self._corrupt_reported += corrupt
        return corrupt


def _packets(position: int) -> int:
    """Return the number of packets that begin before a byte."""
    return -(-position // PAYLOAD_BYTES)


def _runs(numbers: Ints, good: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return ranges [begin, end) of good packets with consecutive numbers, and of bad packets."""
    same = good[1:] == good[:-1]
    goes_on = same & (~good[1:] | (np.diff(numbers) == 1))
    bounds = [0, *(np.flatnonzero(~goes_on) + 1).tolist(), len(numbers)]
    return list(itertools.pairwise(bounds))


def _copy(frame: Bytes, begin: int, rows: Bytes, first: int) -> int:
    """Copy the packets' bytes into the frame whose first byte has the position `begin`.

    Args:
        frame: u1 [frame_bytes], written to.
        begin: position of the frame.
        rows: u1 [n, ...], packets from number `first` on.

    Returns:
        Number of copied bytes.
    """
    start = max(first * PAYLOAD_BYTES, begin)
    stop = min((first + len(rows)) * PAYLOAD_BYTES, begin + len(frame))
    head, inner = divmod(start, PAYLOAD_BYTES)
    at = start - begin
    if inner:  # the first packet's later part
        size = min(PAYLOAD_BYTES - inner, stop - start)
        skip = HEADER_BYTES + inner
        frame[at : at + size] = rows[head - first, skip : skip + size]
        at += size
        head += 1
    if (full := (stop - begin - at) // PAYLOAD_BYTES) > 0:
        size = full * PAYLOAD_BYTES
        body = rows[head - first : head - first + full, HEADER_BYTES:PACKET_BYTES]
        frame[at : at + size].reshape(full, PAYLOAD_BYTES)[...] = body
        at += size
        head += full
    if (size := stop - begin - at) > 0:  # the last packet's earlier part
        frame[at : at + size] = rows[head - first, HEADER_BYTES : HEADER_BYTES + size]
    return stop - start
