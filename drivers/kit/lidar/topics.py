"""Packets of a lidar from live topics of ROS 2 or Zenoh, as in bags (`drivers.kit.lidar.bags`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from drivers.kit.driver import Item, Lost, NewStream, SensorConfig, State
from drivers.kit.lidar.family import Family, convert_payloads
from drivers.kit.lidar.form import FormChangedError
from drivers.kit.topics.connect import parse_address
from drivers.kit.topics.middleware import Arrival
from drivers.kit.topics.reception import PublishersChanged
from drivers.kit.topics.source import GONE_NS, Event, TopicConnection, describe_loss
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import SystemClock, read_clocks
from recorder.common.errors import DeviceError, FormatError, SourceError
from recorder.formats.bags.messages import ABOUT_DEVICE, DECODERS, Decode, Kind
from recorder.formats.ros2.messages import PacketScan

_FIRST_S: Final = 4.0
_READ_S: Final = 0.1
_LONGEST_NS: Final = 2_000_000_000


def connect_packets(sensor: SensorConfig) -> TopicConnection:
    """Return a connection to the topic of a lidar's packets, and those beside it about the device.

    Raises:
        SourceError: the address is wrong.
    """
    topic = parse_address(sensor).topic
    space = topic.rpartition("/")[0]
    return TopicConnection(
        sensor,
        lambda name: (
            name == topic or (name.rpartition("/")[0] == space and name.endswith(ABOUT_DEVICE))
        ),
    )


class TopicSource:
    """Source of the packets of one lidar on live topics.

    A packet's time is that of its message's arrival, less what its stamp is older than that of the
    message's last packet.  A message that cannot be decoded is `Lost`, cause ``corrupt``; missing
    messages are reported in a `State`, and what they held by the packets themselves.

    Args:
        family: the vendor's family.
        connection: see `connect_packets`; it outlives the source.
    """

    def __init__(self, family: Family, connection: TopicConnection) -> None:
        self._family, self._sensor = family, family.sensor
        self._connection = connection
        self._decoders: dict[str, Decode] = {}
        self._waiting: list[Event] = []
        self._last_ns = 0

    def open(self) -> Sequence[StreamSpec]:
        """Wait for the first packet and declare the stream.

        Raises:
            SourceError: the topic has no packets of a lidar.
            DeviceError: the topic is not there, or nothing arrives.
        """
        connection = self._connection
        name = connection.address.topic
        if not name:
            raise SourceError(f"{connection.place}: needs a topic, as in #/lidar_packets")
        topic = connection.wait_for_topic(name)
        found = DECODERS.get(("cdr", topic.type_name))
        if found is None or found[0] is not Kind.LIDAR_PACKETS:
            raise SourceError(
                f"{connection.place}: is a {topic.type_name}; this driver records packets of a "
                "lidar"
            )
        first, until_s, reason = b"", time.monotonic() + _FIRST_S, "nothing arrives"
        while time.monotonic() < until_s:
            for event in connection.take(_READ_S):
                self._waiting.append(event)
                for payload, _ in self._read_packets(event):
                    reason = f"no packet of {' or '.join(self._family.models)} arrives"
                    if not self._family.take_side_packet(payload) and not first:
                        first = payload if self._family.is_packet(payload) else b""
            if first and not self._family.awaits_side_packets():
                break
        if not first:
            raise DeviceError(f"{connection.place}: {reason}")
        self._stream = self._family.start(first, live=True)
        return self._stream.specs(finite=False)

    def _read_packets(self, event: Event) -> Iterator[tuple[bytes, int]]:
        """Yield payloads, and their times on the clock of the arrival; none of other events."""
        if not isinstance(event, Arrival) or event.data is None:
            return
        try:
            scan = self._decode(event)
        except FormatError:
            return
        newest_ns = max((packet.stamp_ns for packet in scan.packets), default=0)
        for packet in scan.packets:
            age_ns = newest_ns - packet.stamp_ns
            age_ns = age_ns if age_ns < _LONGEST_NS else 0
            yield bytes(packet.data), event.t_mono_ns - age_ns

    def _decode(self, event: Arrival) -> PacketScan:
        if event.topic not in self._decoders:
            topic = self._connection.wait_for_topic(event.topic)
            found = DECODERS.get(("cdr", topic.type_name))
            if found is None or found[0] is not Kind.LIDAR_PACKETS:
                raise FormatError(f"{event.topic} is a {topic.type_name}")
            self._decoders[event.topic] = found[1]
        scan: PacketScan = self._decoders[event.topic](event.data or b"")
        return scan

    def items(self) -> Iterator[Item | NewStream | None]:
        """Yield items; DeviceError if the topic has no publisher any more, or the form changes."""
        place, gone_ns = self._connection.place, None
        while True:
            events, self._waiting = self._waiting, []
            events = events or self._connection.take(_READ_S)
            for event in events:
                if isinstance(event, Arrival):
                    try:
                        yield from self._take(event)
                    except FormChangedError as error:
                        raise DeviceError(f"{place}: {error}") from None
                elif isinstance(event, PublishersChanged):
                    if event.topic == self._connection.address.topic:
                        gone_ns = None if event.publishers else event.t_mono_ns
                else:
                    lost = describe_loss(self._sensor.name, event, self._last_ns)
                    values = {"topic": event.topic, "messages_missing": lost.count, **lost.detail}
                    yield State(self._sensor.name, lost.t_ns, values | {"cause": lost.cause})
            if gone_ns is not None and time.monotonic_ns() - gone_ns > GONE_NS:
                yield from self._stream.finish()
                raise DeviceError(f"{place}: the topic has no publisher any more")
            if not events:
                yield None

    def _take(self, event: Arrival) -> Iterator[Item | NewStream]:
        name = self._sensor.name
        try:
            self._decode(event)
        except FormatError as error:
            self._last_ns = max(self._last_ns, event.t_mono_ns)
            yield Lost(name, self._last_ns, "corrupt", None, detail={"reason": str(error)})
            return
        offset_ns = read_clocks(SystemClock()).offset_ns
        payloads = self._read_payloads(event)
        yield from convert_payloads(self._family, self._stream, payloads, offset_ns)

    def _read_payloads(self, event: Arrival) -> Iterator[tuple[int, bytes]]:
        for payload, t_ns in self._read_packets(event):
            self._last_ns = max(self._last_ns, t_ns)
            yield self._last_ns, payload

    def close(self) -> None:
        """Release nothing: the connection stays for the next opening."""
