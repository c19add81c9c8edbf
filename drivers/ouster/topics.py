"""Packets that Ouster's ROS driver sends on live topics of ROS 2 or Zenoh.

The topic of the source is that of the lidar's packets; the IMU's packets and the sensor's metadata
are beside it, as in bags (`drivers.ouster.bags`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from drivers.kit.driver import Item, Lost, SensorConfig, State
from drivers.kit.topics.connect import parse_address
from drivers.kit.topics.middleware import Arrival, Topic
from drivers.kit.topics.reception import Loss, PublishersChanged
from drivers.kit.topics.source import GONE_NS, Event, TopicConnection, describe_loss
from drivers.ouster.frames import SILENCE_NS
from drivers.ouster.intake import AssemblingSource
from drivers.ouster.packets import Sorter
from drivers.ouster.sdk import load_info, load_sdk, parse_info
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import DeviceError, FormatError, SourceError
from recorder.formats.bags.messages import DECODERS, Decode, Kind
from recorder.formats.ros2.codec import decode_message
from recorder.formats.ros2.definitions import STRING

_LIDAR_PORT, _IMU_PORT = 7502, 7503  # stand for the two topics
_METADATA_S: Final = 3.0
_READ_S: Final = 0.1


class PacketTopics:
    """Connection to the topics of one sensor, kept from one opening to the next."""

    def __init__(self, config: SensorConfig) -> None:
        self.lidar = parse_address(config).topic
        namespace = self.lidar.rpartition("/")[0]
        self.imu, self.metadata = f"{namespace}/imu_packets", f"{namespace}/metadata"
        names = [self.lidar, self.imu, self.metadata]
        if config.options["metadata"]:
            names.remove(self.metadata)
        self.connection = TopicConnection(config, names)
        self.waiting: list[Event] = []
        self.text = ""

    def wait_for_metadata(self) -> str:
        """Return the text of the topic of the metadata.

        Raises:
            DeviceError: no metadata arrives.
        """
        deadline_s = time.monotonic() + _METADATA_S
        while not self.text:
            if time.monotonic() > deadline_s:
                place, topic = self.connection.place, self.metadata
                raise DeviceError(f"{place}: no metadata on {topic}; set the option `metadata`")
            for event in self.connection.take(_READ_S):
                if isinstance(event, Arrival) and event.topic == self.metadata:
                    self.text = decode_message(STRING, event.data or b"")
                elif event.topic != self.metadata:
                    self.waiting.append(event)
        return self.text


class TopicSource(AssemblingSource):
    """Packets from live topics, parsed and assembled in the same way as those of the network.

    Args:
        config: the sensor's entry.
        topics: of the sensor.
    """

    def __init__(self, config: SensorConfig, topics: PacketTopics) -> None:
        self._config, self._topics = config, topics

    def open(self) -> Sequence[StreamSpec]:
        core, connection = load_sdk(), self._topics.connection
        topic = connection.wait_for_topic(self._topics.lidar)
        self._decode = _find_decoder(connection, topic)
        if file := self._config.options["metadata"]:
            info, text = load_info(core, Path(file))
            where = str(file)
        else:
            text, where = self._topics.wait_for_metadata(), f"{connection.place}: metadata"
            info = parse_info(core, text, where)
        specs = self._declare(core, info, text, where, live=True)
        self._sorter = Sorter(core, info, _LIDAR_PORT, _IMU_PORT)
        self._last_ns = time.monotonic_ns()
        self._misfit_reported = False
        return specs

    def items(self) -> Iterator[Item | None]:
        heard_ns = time.monotonic_ns()
        gone_ns: int | None = None
        is_quiet = False
        while True:
            events, self._topics.waiting = self._topics.waiting, []
            events = events or self._topics.connection.take(_READ_S)
            for event in events:
                if isinstance(event, Arrival):
                    heard_ns, is_quiet = time.monotonic_ns(), False
                    yield from self._take(event)
                elif isinstance(event, PublishersChanged):
                    if event.topic == self._topics.lidar:
                        gone_ns = None if event.publishers else event.t_mono_ns
                elif event.topic != self._topics.metadata:
                    yield from self._report(event)
            now_ns = time.monotonic_ns()
            if now_ns - heard_ns > SILENCE_NS and not is_quiet:
                is_quiet = True
                yield from self._assembly.finish()
            if gone_ns is not None and now_ns - gone_ns > GONE_NS:
                yield from self._sensor.finish()
                place = self._topics.connection.place
                raise DeviceError(f"{place}: the topic has no publisher any more")
            if not events:
                yield None

    def _take(self, event: Arrival) -> Iterator[Item]:
        self._last_ns = max(self._last_ns, event.t_mono_ns)
        port = _LIDAR_PORT if event.topic == self._topics.lidar else _IMU_PORT
        if event.topic == self._topics.metadata or event.data is None:
            return
        try:
            payload = np.frombuffer(self._decode(event.data), np.uint8)
        except FormatError:
            payload = np.empty(0, np.uint8)
        packet = self._sorter.packet(port, payload)
        if packet is None:
            packet = self._sorter.packet(port, payload[:-1])  # of old versions of the ROS driver
        if packet is None:
            yield from self._report_misfit(port, len(payload))
        elif self._sorter.is_ours(packet, None) and self._intake.is_usable(packet):
            packet.host_timestamp = self._last_ns
            yield from self._intake.take(packet)

    def _report_misfit(self, port: int, size: int) -> Iterator[Item]:
        if port == _LIDAR_PORT and not self._misfit_reported:
            self._misfit_reported = True
            expected = int(self._sorter.layout.lidar_packet_size)
            detail = {"packet_bytes": size, "expected_bytes": expected}
            lost = Lost(self._config.name, self._last_ns, "corrupt", None, detail=detail)
            yield from self._assembly.hold(lost, self._last_ns)

    def _report(self, loss: Loss) -> Iterator[Item]:
        """Report missing packets; the sweeps that lack them are counted by their frame ids."""
        lost = describe_loss(self._config.name, loss, self._last_ns)
        values: dict[str, Any] = {
            "topic": loss.topic, "packets_missing": lost.count, "cause": lost.cause, **lost.detail,
        }  # fmt: skip
        state = State(self._config.name, lost.t_ns, values)
        yield from self._assembly.hold(state, lost.t_ns)

    def close(self) -> None:
        """Release nothing: the connection stays for the next opening."""


def _find_decoder(connection: TopicConnection, topic: Topic) -> Decode:
    found = DECODERS.get(("cdr", topic.type_name))
    if found is None or found[0] is not Kind.PACKETS:
        raise SourceError(
            f"{connection.place}: is a {topic.type_name}; this driver records packets "
            "(ouster_sensor_msgs/msg/PacketMsg)"
        )
    return found[1]
