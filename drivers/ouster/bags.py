"""Packets that Ouster's ROS driver sent, in an MCAP file or a ROS 2 bag.

The driver (ouster-lidar/ouster-ros) sends each UDP packet as a ``PacketMsg`` on
``NAMESPACE/lidar_packets`` and ``NAMESPACE/imu_packets``, and the sensor's metadata as a
``std_msgs/msg/String`` on ``NAMESPACE/metadata``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from drivers.kit.driver import Item, Lost
from drivers.kit.mcap_source import clock_steps, open_bag
from drivers.ouster.packets import Misfit, Sorter
from drivers.ouster.played import PacketSource
from drivers.ouster.sdk import load_info, load_sdk, parse_info
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, SourceError
from recorder.formats.bags.bag import Bag, Cut
from recorder.formats.bags.contents import choose_topic, find_first_message, find_topics, origin_ns
from recorder.formats.bags.messages import Kind

if TYPE_CHECKING:
    from recorder.formats.mcap import McapMessage

_LIDAR_PORT, _IMU_PORT = 7502, 7503  # stand for the two topics
_OTHER = ("imu_packets", "zone_packets", "telemetry_packets")


class BagSource(PacketSource):
    """Source that reads a recording packet by packet.

    A packet's stamp is the log time of its message: the time at which the recorder received it.
    Messages of old versions of the ROS driver have one byte more than the packet.

    Attributes:
        clock_steps: steps of the recording's clock; see `Driver`.
    """

    clock_steps: Sequence[tuple[int, str]] = ()
    _bag: Bag | None = None
    _messages: Generator[McapMessage] | None = None

    def open(self) -> Sequence[StreamSpec]:
        core = load_sdk()
        self._bag, wanted = open_bag(self._config)
        try:
            return self._open(core, self._bag, wanted)
        except (OSError, FormatError) as error:
            raise self._config.fault(error) from None

    def _open(self, core: Any, bag: Bag, wanted: str) -> Sequence[StreamSpec]:
        name = self._config.name
        topic, content = choose_topic(bag, Kind.PACKETS, wanted, name, _is_lidar)
        namespace = topic.rpartition("/")[0]
        self._decode = content.decode
        info, text, where = self._metadata(core, bag, namespace)
        self._played, self._last_ns, self._cuts = bag, 0, list(bag.cuts)
        self.clock_steps = clock_steps(bag)
        specs = self._declare(core, info, text, where)
        self._sorter = Sorter(core, info, _LIDAR_PORT, _IMU_PORT)
        self._ports = {topic: _LIDAR_PORT}
        for other in find_topics(bag, Kind.PACKETS):
            if other.rpartition("/")[0] == namespace and other.endswith("imu_packets"):
                self._ports[other] = _IMU_PORT
        self._check(bag, topic, info, where)
        self._messages = bag.messages(list(self._ports))
        if _IMU_PORT not in self._ports.values():
            specs = [spec for spec in specs if spec.name == name]
        return specs

    def _metadata(self, core: Any, bag: Bag, namespace: str) -> tuple[Any, str, str]:
        """Return the SensorInfo, its text, and where it is from."""
        if (file := self._config.options["metadata"]) is not None:
            info, text = load_info(core, Path(file))
            return info, text, str(file)
        for topic, content in find_topics(bag, Kind.TEXT).items():
            if topic.rpartition("/")[0] != namespace or "metadata" not in topic:
                continue
            if (message := find_first_message(bag, topic)) is not None:
                text = content.decode(message.read_data())
                where = f"{self._config.name}: {bag.path}: {topic}"
                return parse_info(core, text, where), text, where
        raise FormatError(
            f"has no topic {namespace}/metadata with the sensor's metadata; set the option "
            "`metadata` to the file that the sensor gives over HTTP"
        )

    def _check(self, bag: Bag, topic: str, info: Any, where: str) -> None:
        """Raise FormatError if the first packet is not of the sensor that the metadata is of."""
        message = find_first_message(bag, topic)
        if message is None:
            raise FormatError(f"topic {topic!r} has no message")
        payload = np.frombuffer(self._decode(message.read_data()), np.uint8)
        packet = self._packet(_LIDAR_PORT, payload)
        expected = int(self._sorter.layout.lidar_packet_size)
        profile = info.format.udp_profile_lidar.name
        if packet is None:
            raise FormatError(
                f"topic {topic!r}: packets of {len(payload)} bytes; the metadata ({where}) is of a "
                f"sensor with {expected} bytes ({profile})"
            )
        if not self._sorter.is_ours(packet, None):
            raise FormatError(
                f"topic {topic!r}: packets of the sensor {packet.prod_sn()}; the metadata "
                f"({where}) is of the sensor {info.sn}"
            )

    @property
    def origin_ns(self) -> int:
        """The earliest time of the recording's messages that drivers play, epoch ns."""
        try:
            return origin_ns(self._played)
        except (OSError, FormatError) as error:
            raise self._config.fault(error) from None

    def _packet(self, port: int, payload: Any) -> Any:
        packet = self._sorter.packet(port, payload)
        return packet if packet is not None else self._sorter.packet(port, payload[:-1])

    def _packets(self) -> Iterator[Any]:
        if self._messages is None:
            return
        misfits = False
        expected = int(self._sorter.layout.lidar_packet_size)
        for message in self._messages:
            port = self._ports[message.topic]
            if self._played.is_timed(message):
                while self._cuts and self._cuts[0].time_ns < message.time_ns:
                    yield self._truncated(self._cuts.pop(0))
                self._last_ns = max(self._last_ns, message.time_ns)
            t_ns = self._last_ns
            try:
                payload = np.frombuffer(self._decode(message.read_data()), np.uint8)
            except FormatError:
                payload = np.empty(0, np.uint8)
            packet = self._packet(port, payload)
            if packet is None:
                if port == _LIDAR_PORT and not misfits:
                    yield Misfit(t_ns, len(payload), expected)
                misfits |= port == _LIDAR_PORT
                continue
            if not self._sorter.is_ours(packet, None):
                continue
            if port == _LIDAR_PORT:
                misfits = False
            packet.host_timestamp = t_ns
            yield packet

    def items(self) -> Iterator[Item]:
        yield from super().items()
        for cut in self._cuts:
            yield self._truncated(cut)

    def _truncated(self, cut: Cut) -> Lost:
        detail = {"reason": cut.reason}
        return Lost(self._config.name, self._last_ns, "truncated", None, detail=detail)

    def _fault(self, text: str) -> SourceError:
        return self._config.fault(text)

    def close(self) -> None:
        if self._messages is not None:
            self._messages.close()
            self._messages = None
        if self._bag is not None:
            self._bag.close()
            self._bag = None


def _is_lidar(topic: str) -> bool:
    return not topic.endswith(_OTHER)
