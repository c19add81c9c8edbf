"""The simulated radar as a source: the assembler of real packets assembles its packets."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Sample, SensorConfig
from drivers.kit.sample_batches import DeferredData
from drivers.mmwave.frames import AssembledFrame, FrameAssembler
from drivers.mmwave.model import make_radar
from drivers.mmwave.model_packets import FramePackets
from drivers.mmwave.options import RadarSetup
from drivers.mmwave.stream import frame_data, shape_frame


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
