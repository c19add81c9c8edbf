"""The simulated Ouster: its packets use the parser and the assembly of real packets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Sample, SensorConfig
from drivers.kit.sample_batches import DeferredData, select_samples
from drivers.ouster.frames import Assembly, Fields, packet_fields
from drivers.ouster.model import DEFAULT_MODE, default_info, make_lidar_scene
from drivers.ouster.model_packets import LidarPackets, SentPacket, imu_values, sdk_packets
from drivers.ouster.sdk import SDK_ERRORS, load_info, load_sdk, one_line
from drivers.ouster.stream import Sensor
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError


class SimulatedSource:
    """The simulated lidar, endless; its clock starts one second before the source.

    Data are generated on access; items that are not accessed cost only their stamps.
    """

    def __init__(self, config: SensorConfig) -> None:
        self._config = config
        self._kept: tuple[int, list[SentPacket]] = (-1, [])

    def open(self) -> Sequence[StreamSpec]:
        self._core, options = load_sdk(), self._config.options
        core = self._core
        info, text = default_info(core, options["mode"] or DEFAULT_MODE, options["beams"]), ""
        if options["metadata"]:
            info, text = load_info(core, Path(options["metadata"]))
        try:
            self._scene = make_lidar_scene(core, info, self._config.name, options)
            self._packets = LidarPackets(core, info, self._scene)
            fields: Fields = {name: (dtype, ()) for name, dtype in self._scene.fields.items()}
            self._sensor = Sensor(core, self._config, info, fields)
            sent = packet_fields(core, info)
            self._assembly: Assembly[Item] = Assembly(
                core,
                info,
                {name: sent[name] for name in self._sensor.recorded},
                self._sensor.sweep,
                self._sensor.restarted,
            )
        except SDK_ERRORS as error:
            raise SourceError(
                f"{options['metadata']}: unusable metadata: {one_line(error)}"
            ) from None
        self._layout, self._per_imu_packet = core.PacketFormat(info), 1
        if self._packets.in_frames:
            self._per_imu_packet = int(info.format.imu_measurements_per_packet)
        return self._sensor.specs(text, self._packets.imu_hz is not None, finite=False)

    def items(self) -> Iterator[Item]:
        scene, name = self._scene, self._config.name
        for index in itertools.count():
            yield from self._imu(index)
            if scene.fields:
                stamp = np.array([scene.end_time(index)], np.int64)
                yield Sample(name, stamp, DeferredData(partial(self._sweep, index)), stamp.copy())

    def _imu(self, index: int) -> Iterator[Sample]:
        """Make a sample for each IMU packet of a sweep."""
        packets, size = self._packets, self._per_imu_packet
        first, count = packets.imu_range(index)
        if not self._config.options["imu"] or packets.imu_hz is None or not count:
            return
        times = self._scene.imu_times(first, count, packets.imu_hz)
        batch = DeferredData(partial(self._imu_data, index))
        for begin in range(0, count, size):
            part = slice(begin, begin + size)
            stamps = times[part].copy()
            yield Sample(
                self._config.name + "_imu", stamps, select_samples(batch, part), stamps.copy()
            )

    def _imu_data(self, index: int) -> Mapping[str, npt.NDArray[Any]]:
        sent = self._packets.imu(index)
        if self._packets.in_frames:
            sent = [packet for packet in self._make_packets(index) if packet.imu]
        return imu_values(self._core, self._layout, sent)

    def _make_packets(self, index: int) -> list[SentPacket]:
        """Return a sweep's packets; the latest sweep's are cached for its IMU data."""
        if self._kept[0] != index:
            self._kept = index, self._packets.lidar(index)
        return self._kept[1]

    def _sweep(self, index: int) -> Mapping[str, npt.NDArray[Any]]:
        items: list[Item] = []
        for packet in sdk_packets(self._core, self._layout, self._make_packets(index)):
            items += self._assembly.take(packet)
        items += self._assembly.finish()
        made = next(item.data for item in items if isinstance(item, Sample))
        return {name: values for name, values in made.items() if isinstance(values, np.ndarray)}

    def close(self) -> None:
        """Do nothing: the source holds no resources."""
