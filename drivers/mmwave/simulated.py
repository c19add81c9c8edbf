"""The simulated radar as a source: the assembler of real packets assembles its packets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Sample, SensorConfig
from drivers.kit.sample_batches import DeferredData
from drivers.mmwave.frames import AssembledFrame, FrameAssembler
from drivers.mmwave.model import make_radar
from drivers.mmwave.options import RadarSetup
from drivers.mmwave.packets import PAYLOAD_BYTES, make_packets
from drivers.mmwave.stream import frame_data, shape_frame

Bytes = npt.NDArray[np.uint8]
Frame = npt.NDArray[np.int16]


class FramePackets:
    """A card's packets of an endless sequence of frames, beginning at any frame.

    >>> packets = FramePackets(radar.frame, chirp.frame_bytes)
    >>> packets.holding(7)           # u1 [n, 1466]: all that hold bytes of frame 7

    The packets at a frame's edges also hold bytes of its neighbours, which are made too.  The
    latest frames are cached, so that each frame is made once if frames are requested in order.

    Args:
        frame: makes frame k, int16 of any shape.
        frame_bytes: size of one frame.
    """

    def __init__(self, frame: Callable[[int], Frame], frame_bytes: int) -> None:
        self._make, self._size = frame, frame_bytes
        self._made: dict[int, Bytes] = {}

    def holding(self, index: int) -> Bytes:
        """Return all packets, u1 [n, 1466], that hold bytes of frame `index` (from 0)."""
        first = index * self._size // PAYLOAD_BYTES
        end = -(-(index + 1) * self._size // PAYLOAD_BYTES)
        begin, stop = first * PAYLOAD_BYTES, end * PAYLOAD_BYTES
        indices = range(begin // self._size, -(-stop // self._size))
        payload = np.empty(stop - begin, np.uint8)
        for k in indices:
            frame = self._frame(k)
            low, high = max(begin, k * self._size), min(stop, (k + 1) * self._size)
            payload[low - begin : high - begin] = frame[
                low - k * self._size : high - k * self._size
            ]
        self._made = {k: self._made[k] for k in indices}
        return make_packets(payload, first)

    def _frame(self, index: int) -> Bytes:
        if index not in self._made:
            self._made[index] = _bytes(self._make(index))
        return self._made[index]


class CardBuffer:
    """The card's buffer for a radar's bytes that do not fill a packet yet.

    Attributes:
        sent: number of full packets.
    """

    def __init__(self) -> None:
        self.sent = 0
        self._rest = np.empty(0, np.uint8)

    def push(self, frame: Frame) -> Bytes:
        """Add a frame; return the packets, u1 [n, 1466], that it fills."""
        data = np.concatenate((self._rest, _bytes(frame)))
        count = len(data) // PAYLOAD_BYTES
        packets = make_packets(data[: count * PAYLOAD_BYTES], self.sent)
        self._rest = data[count * PAYLOAD_BYTES :].copy()
        self.sent += count
        return packets

    @property
    def waiting(self) -> int:
        """Number of bytes in the partial packet."""
        return len(self._rest)


def _bytes(frame: Frame) -> Bytes:
    return np.ascontiguousarray(frame).reshape(-1).view(np.uint8)


class SimulatedFrames:
    """Converter of a simulated radar's frames to packets of a simulated capture card and back.

    Args:
        sensor: its options describe the radar.
        setup: the chirps and the order of the values.
    """

    def __init__(self, sensor: SensorConfig, setup: RadarSetup) -> None:
        radar = make_radar(sensor.name, sensor.options, setup.chirp, setup.iq_order)
        self._name, self.radar, self._index = sensor.name, radar, 0
        self._size = radar.chirp.frame_bytes
        self._packets = FramePackets(radar.frame, self._size)

    def read(self) -> Sample:
        """Return the next frame, whose data are made on access."""
        index = self._index
        self._index += 1
        later = DeferredData(partial(self.data, index))
        return Sample(self._name, np.array([self.radar.end_ns(index)], np.int64), later)

    def close(self) -> None:
        """Do nothing: the source holds no resources."""

    def data(self, index: int) -> dict[str, npt.NDArray[Any]]:
        """Return the data of frame `index`."""
        packets = self._packets.holding(index)
        sizes = np.full(len(packets), packets.shape[1], np.int64)
        assembler = FrameAssembler(self._size, first=index)
        frames = assembler.take(packets, sizes, np.zeros(len(packets), np.int64))
        frame = (frames or assembler.flush())[0]
        if not isinstance(frame, AssembledFrame):
            raise AssertionError(f"frame {index} was not assembled from its own packets")
        return frame_data(shape_frame(frame, self.radar.chirp), not frame.bytes_missing)
