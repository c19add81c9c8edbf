"""Packets of a lidar from topics of a ROS 2 bag or an MCAP file.

The ROS drivers of the vendors, and nebula's, send the packets of a turn as one message, or each
packet as one (`recorder.formats.bags.messages.LIDAR_PACKETS`).  What the device tells of itself
comes in packets of the same topic, or of a topic beside it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final

from drivers.kit.driver import Item, Lost, NewStream
from drivers.kit.lidar.family import Family, PacketStream, convert_payloads
from drivers.kit.lidar.stream import FIRST, SweepStream
from drivers.kit.mcap_source import clock_steps, open_bag
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.formats.bags.bag import Bag, Cut
from recorder.formats.bags.contents import choose_topic, find_content, find_topics, origin_ns
from recorder.formats.bags.messages import ABOUT_DEVICE, Kind
from recorder.formats.bags.timing import Timed, Timing, order_messages
from recorder.formats.ros2.definitions import ROBOSENSE_INFO
from recorder.formats.ros2.messages import PacketScan

_LONGEST_NS: Final = 2_000_000_000
"""A packet's stamp is used if it lies so near to that of its message."""
_LOOKED_AT: Final = 2000


class BagSource:
    """Source of the packets of one lidar in a recording.

    A packet's stamp is the one in its message, which the ROS driver took at the packet's arrival;
    where it is of another clock, the log time of the message.  A message that cannot be decoded is
    `Lost`, cause ``corrupt``; the early end of a file is `Lost`, cause ``truncated``.

    Args:
        family: the vendor's family.

    Attributes:
        clock_steps: steps of the recording's clock; see `drivers.kit.driver.Driver`.
    """

    clock_steps: Sequence[tuple[int, str]] = ()

    def __init__(self, family: Family) -> None:
        self._family, self._sensor = family, family.sensor
        self._bag, self._wanted = open_bag(self._sensor)
        self._last_ns = 0

    @property
    def origin_ns(self) -> int:
        """The earliest time of the recording's messages that drivers play, epoch ns."""
        try:
            return origin_ns(self._bag)
        except (OSError, FormatError) as error:
            raise self._sensor.fault(error) from None

    def open(self) -> Sequence[StreamSpec]:
        """Find the topics and the first packet; SourceError if no packet is found."""
        bag = self._bag
        try:
            topic, _ = choose_topic(
                *(bag, Kind.LIDAR_PACKETS, self._wanted, self._sensor.name),
                lambda name: self._wanted.strip("/") == name.strip("/") or not _is_about(bag, name),
            )
            namespace = topic.rpartition("/")[0]
            self._topics = [topic] + [
                other
                for other in find_topics(bag, Kind.LIDAR_PACKETS)
                if other != topic
                and other.rpartition("/")[0] == namespace
                and _is_about(bag, other)
            ]
            self._stream = self._find_first(topic)
        except (OSError, FormatError) as error:
            raise self._sensor.fault(error) from None
        self.clock_steps = clock_steps(bag)
        return self._stream.specs(finite=True)

    def _find_first(self, topic: str) -> PacketStream:
        """Return the stream of the first packet with ranges, and take what precedes it."""
        first, seen = b"", 0
        firsts: list[bytes] = []
        for timed in self._messages():
            if isinstance(timed, Cut) or timed.problem is not None:
                continue
            for _, payload in _list_packets(timed, 0):
                seen += 1
                asks = not first or self._family.awaits_side_packets()
                if asks and self._family.take_side_packet(payload):
                    continue
                if not first:
                    first = payload if self._family.is_packet(payload) else b""
                if first:
                    firsts.append(payload)
            enough = len(firsts) >= FIRST and not self._family.awaits_side_packets()
            if seen > _LOOKED_AT or enough:
                break
        if not first:
            models = " or ".join(self._family.models)
            raise FormatError(f"topic {topic!r} has no packet of {models}, but {seen} others")
        stream = self._family.start(first, live=False)
        if isinstance(stream, SweepStream):
            stream.measure_payloads(firsts[:FIRST])
        return stream

    def _messages(self) -> Generator[Timed | Cut]:
        bag = self._bag
        decoders = {name: find_content(bag.topics[name]).decode for name in self._topics}
        return order_messages(bag, Timing(bag, decoders))

    def items(self) -> Iterator[Item | NewStream]:
        """Yield sweeps; SourceError at damage, after the sweeps before it."""
        fault: Exception | None = None
        try:
            for timed in self._messages():
                if isinstance(timed, Cut):
                    detail = {"reason": timed.reason}
                    name = self._sensor.name
                    yield Lost(name, self._last_ns, "truncated", None, detail=detail)
                elif timed.problem is not None:
                    yield self._lose(timed)
                else:
                    yield from self._convert(timed)
        except (FormatError, OSError) as error:
            fault = error
        yield from self._stream.finish()
        if fault is not None:
            raise self._sensor.fault(fault)

    def _lose(self, timed: Timed) -> Lost:
        self._last_ns = max(self._last_ns, timed.t_ns or 0)
        detail = {"reason": str(timed.problem), "log_ns": timed.message.log_ns}
        return Lost(self._sensor.name, self._last_ns, "corrupt", None, detail=detail)

    def _convert(self, timed: Timed) -> Iterator[Item | NewStream]:
        yield from convert_payloads(self._family, self._stream, self._read_payloads(timed))

    def _read_payloads(self, timed: Timed) -> Iterator[tuple[int, bytes]]:
        for t_ns, payload in _list_packets(timed, self._last_ns):
            self._last_ns = max(self._last_ns, t_ns)
            yield self._last_ns, payload

    def close(self) -> None:
        self._bag.close()


def _is_about(bag: Bag, topic: str) -> bool:
    """Return whether a topic has packets that devices send about themselves."""
    return bag.topics[topic].schema_name == ROBOSENSE_INFO or topic.endswith(ABOUT_DEVICE)


def _list_packets(timed: Timed, last_ns: int) -> Iterator[tuple[int, bytes]]:
    """Yield time, epoch ns, and payload of a message's packets; a message may have no time."""
    scan: PacketScan = timed.decoded
    t_ns = last_ns if timed.t_ns is None else timed.t_ns
    for packet in scan.packets:
        since_ns = packet.stamp_ns - scan.header.stamp_ns
        own = since_ns if abs(since_ns) < _LONGEST_NS else 0
        yield t_ns + own, bytes(packet.data)
