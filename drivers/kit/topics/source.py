"""The sources ``ros2:`` and ``zenoh:``: a live topic as the stream of a driver.

The kit replaces a driver by `LiveTopicSource` if the driver declares its kind
(`Driver.recorded_kind`), as for ``mcap:``; messages become the same channels.

Samples have the time of the message's arrival at this computer; the stamp in the message is the
device's time.  Sweeps of points end earlier (`CloudStream.find_time`).  The middleware, its
subscription and what has arrived outlive `close`, so that nothing is lost between two attempts to
open the device.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from drivers.kit.clouds import CloudStream
from drivers.kit.driver import Driver, Item, Lost, Sample, SensorConfig, State
from drivers.kit.mcap_rows import column
from drivers.kit.mcap_source import KINDS, ROWS
from drivers.kit.topics.connect import TOPIC_SCHEMES, open_middleware, parse_address
from drivers.kit.topics.middleware import Arrival, ArrivalQueue, Middleware, Publisher, Topic
from drivers.kit.topics.pictures import PictureConverter, picture_data
from drivers.kit.topics.reception import Loss, PublishersChanged, Reception
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.clock import SystemClock, read_clocks
from recorder.common.errors import DeviceError, FormatError, SourceError
from recorder.formats.bags.messages import DECODERS, Kind
from recorder.formats.bags.timing import read_stamp
from recorder.formats.ros2.clouds import Cloud
from recorder.formats.ros2.codec import decode_message
from recorder.formats.ros2.definitions import COMPRESSED_VIDEO
from recorder.formats.ros2.messages import CompressedVideo

GONE_NS: Final = 5_000_000_000
"""Time without a publisher after which the device is lost."""
_TOPIC_S: Final = 4.0  # longest wait for a topic and its first message
_GATHER_S: Final = 0.5  # for the messages that show the rate and the channels
_LOOKED_AT: Final = 20
_READ_S: Final = 0.1
_LONGEST_BATCH: Final = 1000

Decode = Callable[[Any], Any]
Event = Arrival | Loss | PublishersChanged


class TopicConnection:
    """Middleware and reception of a driver, which outlive single attempts to open its device.

    Args:
        sensor: the entry.
        names: topics that are received, or a function that returns whether one is; None: that of
            the address.

    Raises:
        SourceError: the address is wrong.
    """

    def __init__(
        self,
        sensor: SensorConfig,
        names: Sequence[str] | Callable[[str], bool] | None = None,
    ) -> None:
        self.sensor = sensor
        self.address = parse_address(sensor)
        self.place = f"{sensor.name}: {sensor.scheme}:{sensor.address}"
        if not self.address.topic and not callable(names):
            raise SourceError(f"{self.place}: needs a topic, as in #/camera/image")
        self._names = [self.address.topic] if names is None else names
        self.middleware: Middleware | None = None
        self.reception: Reception | None = None
        self.warnings: list[str] = []

    def join(self) -> Reception:
        """Connect, unless that is done, and look for the topics.

        Raises:
            SourceError: the middleware's packages are missing.
            DeviceError: it cannot be joined or reached.
        """
        if self.reception is None:
            options = self.sensor.options
            queue = ArrivalQueue(round(options["queue_mb"] * 1e6))
            try:
                middleware = open_middleware(self.address, queue, options)
            except (DeviceError, SourceError) as error:
                raise type(error)(f"{self.place}: {error}") from None
            self.middleware, self.warnings = middleware, middleware.warnings
            self.reception = Reception(middleware, queue, self._names, options["depth"])
            self.reception.start()
            atexit.register(self.leave)
        return self.reception

    def wait_for_topic(self, name: str) -> Topic:
        """Return a topic that is received.

        Raises:
            DeviceError: it has no publisher, or it cannot be received.
        """
        reception = self.join()
        deadline_s = time.monotonic() + _TOPIC_S
        while (topic := reception.topic(name)) is None:
            if (error := reception.refused.get(name)) is not None:
                raise DeviceError(f"{self.place}: {error}")
            if time.monotonic() > deadline_s:
                known = ", ".join(sorted(reception.look())[:20]) or "none"
                raise DeviceError(f"{self.place}: {name} has no publisher; topics here: {known}")
            time.sleep(0.02)
        return topic

    def take(self, timeout_s: float) -> list[Event]:
        """Return what has arrived; ends the connection where it is lost.

        Raises:
            DeviceError: it is lost.
        """
        try:
            return list(self.join().take(timeout_s))
        except DeviceError as error:
            self.leave()
            raise DeviceError(f"{self.place}: {error}") from None

    def look(self) -> Mapping[str, Topic]:
        """Return the topics that are there; ends the connection where it is lost.

        Raises:
            DeviceError: it is lost.
        """
        try:
            return self.join().look()
        except DeviceError as error:
            self.leave()
            raise DeviceError(f"{self.place}: {error}") from None

    def leave(self) -> None:
        """End the connection."""
        if self.reception is not None:
            atexit.unregister(self.leave)
            self.reception.close()
        self.reception = self.middleware = None


class LiveTopicSource(Driver):
    """Source of one topic.

    A message that cannot be decoded is `Lost`, cause ``corrupt``; a number that did not arrive is
    `Lost`, cause ``transport`` between two others, ``joining`` before the first one of a publisher
    that is new, ``overflow`` where the driver was late; the unknown rest of a publisher that is
    gone is `Lost`, cause ``vanished``, without a count.  A lasting `State` has the publishers, and
    whether losses can be counted.

    Attributes:
        connection: the driver's, which outlives `close`.
    """

    live_schemes = TOPIC_SCHEMES

    def __init__(self, sensor: SensorConfig, kind: str) -> None:
        """Make a source for a driver of a kind: a key of `KINDS`.

        Raises:
            SourceError: the address is wrong.
        """
        super().__init__(sensor)
        self._kind = KINDS[kind]
        self.connection = TopicConnection(sensor)
        self._gone_ns: int | None = None
        self._last_sweep_ns = 0
        self._waiting: list[Event] = []
        self._items: deque[Item] = deque()
        self._warned = False
        self._is_counted: bool | None = None

    def open(self) -> Sequence[StreamSpec]:
        """Join the middleware, and declare the stream from the first messages.

        Raises:
            SourceError: packages are missing, or the topic is of a kind that the driver does not
                record.
            DeviceError: the topic is not there, or nothing arrives.
        """
        connection = self.connection
        topic = connection.wait_for_topic(connection.address.topic)
        self._decode = self._find_decoder(connection, topic)
        self._pictures = PictureConverter(connection.place)
        self._has_device_time, self._gone_ns = False, None
        self._last_ns = time.monotonic_ns()
        self.warnings = list(connection.warnings)
        if not self._warned:
            for text in self.warnings:
                print(f"{self.sensor.name}: {text}", file=sys.stderr, flush=True)
            self._warned = True
        first = self._gather(connection)
        return [self._declare(topic, first)]

    def _find_decoder(self, connection: TopicConnection, topic: Topic) -> Decode:
        if topic.type_name == COMPRESSED_VIDEO and self._kind is Kind.PICTURES:
            return lambda data: decode_message(COMPRESSED_VIDEO, data)
        found = DECODERS.get(("cdr", topic.type_name))
        if found is None or found[0] is not self._kind:
            known = sorted(
                n for (e, n), (k, _) in DECODERS.items() if e == "cdr" and k is self._kind
            )
            raise SourceError(
                f"{connection.place}: is a {topic.type_name}; this driver records "
                f"{', '.join(known)}"
            )
        return found[1]

    def _gather(self, connection: TopicConnection) -> list[tuple[int, Any]]:
        """Return times and contents of the first messages, which `read` returns later."""
        found: list[tuple[int, Any]] = []
        problem = "nothing arrives"
        until_s = time.monotonic() + _TOPIC_S
        looked_at = 0
        while True:
            left_s = until_s - time.monotonic()
            if looked_at == len(self._waiting):
                self._waiting += connection.take(min(_READ_S, max(left_s, 0)))
            for event in self._waiting[looked_at:]:
                if not isinstance(event, Arrival):
                    continue
                try:
                    found += self._look_at(event, is_first=not found)
                except FormatError as error:
                    problem = f"no message can be recorded: {error}"
                if not found and self._kind is Kind.PICTURES:
                    self._waiting.remove(event)  # video before its first keyframe
                if len(found) == 1:
                    until_s = min(until_s, time.monotonic() + _GATHER_S)
            looked_at = len(self._waiting)
            if len(found) >= _LOOKED_AT or left_s <= 0:
                break
        if not found:
            raise DeviceError(f"{connection.place}: {problem}")
        return found

    def _look_at(self, event: Arrival, *, is_first: bool) -> list[tuple[int, Any]]:
        assert event.data is not None
        decoded = self._decode(event.data)
        if self._kind is Kind.PICTURES and is_first and self._pictures.convert(decoded) is None:
            return []
        return [(event.t_mono_ns, decoded)]

    def _declare(self, topic: Topic, first: list[tuple[int, Any]]) -> StreamSpec:
        decoded = first[0][1]
        self._has_device_time = _stamp_ns(decoded) > 0
        settings: dict[str, Any] = {"topic": topic.name, "topic_type": topic.type_name}
        if topic.type_hash:
            settings["topic_hash"] = topic.type_hash
        if self._kind is Kind.PICTURES:
            assert self._pictures.channel is not None
            self._channels: tuple[ChannelSpec, ...] = (self._pictures.channel,)
            settings |= self._pictures.settings(decoded)
            settings["jpeg_quality"] = self.sensor.options.get("quality") or 90
            settings["topic_frame"] = getattr(decoded, "header", decoded).frame_id
            size = len(decoded.data)
        elif self._kind is Kind.CLOUDS:
            self._clouds = CloudStream([each for _, each in first])
            self._channels, size = self._clouds.channels, self._clouds.bytes_per_sample
            settings |= self._clouds.settings
            settings["topic_frame"] = decoded.header.frame_id
        else:
            self._channels = ROWS[self._kind][0]([each for _, each in first])
            settings["topic_frame"] = getattr(decoded, "header", decoded).frame_id
            size = 0
        span_s = (first[-1][0] - first[0][0]) / 1e9
        return StreamSpec(
            self.sensor.name,
            self._channels,
            rate_hz=(len(first) - 1) / span_s if span_s > 0 else None,
            device_clock=self._has_device_time,
            description=f"topic {topic.name}",
            settings=settings,
            bytes_per_sample=size,
        )

    def read(self) -> Item | None:
        """Return the next picture, the values that arrived together, a loss or a state.

        Raises:
            DeviceError: the connection is lost, or the topic had no publisher for 5 s.
        """
        if not self._items:
            events, self._waiting = self._waiting, []
            self._convert(events or self.connection.take(_READ_S))
        if self._items:
            return self._items.popleft()
        if self._gone_ns is not None and time.monotonic_ns() - self._gone_ns > GONE_NS:
            raise DeviceError(f"{self.connection.place}: the topic has no publisher any more")
        return None

    def _convert(self, events: Sequence[Event]) -> None:
        rows: list[tuple[int, Any]] = []
        for event in events:
            if isinstance(event, Arrival):
                self._convert_message(event, rows)
                continue
            self._flush(rows)
            if isinstance(event, Loss):
                self._items.append(describe_loss(self.sensor.name, event, self._last_ns))
            else:
                self._gone_ns = None if event.publishers else event.t_mono_ns
                values = {"publishers": [_describe(each) for each in event.publishers]}
                self._items.append(State(self.sensor.name, event.t_mono_ns, values, lasting=True))
        self._flush(rows)

    def _convert_message(self, event: Arrival, rows: list[tuple[int, Any]]) -> None:
        self._last_ns = t_ns = max(self._last_ns, event.t_mono_ns)
        self._report_counting(t_ns)
        assert event.data is not None
        try:
            decoded = self._decode(event.data)
            if self._kind is Kind.CLOUDS:
                self._items.append(self._sweep(t_ns, decoded))
                return
            if self._kind is not Kind.PICTURES:
                rows.append((t_ns, decoded))
                if len(rows) >= _LONGEST_BATCH:
                    self._flush(rows)
                return
            value = self._pictures.convert(decoded)
        except FormatError as error:
            self._flush(rows)
            detail = {"reason": str(error)}
            self._items.append(Lost(self.sensor.name, t_ns, "corrupt", 1, detail=detail))
            return
        if value is not None:
            assert self._pictures.channel is not None
            data = picture_data(self._pictures.channel, value)
            self._items.append(self._sample([(t_ns, decoded)], data))

    def _sweep(self, arrival_ns: int, cloud: Cloud) -> Sample:
        data, end_ns = self._clouds.convert(cloud)
        age_ns = arrival_ns + read_clocks(SystemClock()).offset_ns - cloud.header.stamp_ns
        t_ns = self._clouds.find_time(arrival_ns, age_ns, end_ns)
        t_ns = self._last_sweep_ns = max(self._last_sweep_ns + 1, t_ns)
        t_dev_ns = np.array([max(0, cloud.header.stamp_ns + end_ns)], np.int64)
        times = np.array([t_ns], np.int64)
        return Sample(self.sensor.name, times, data, t_dev_ns if self._has_device_time else None)

    def _flush(self, rows: list[tuple[int, Any]]) -> None:
        if rows:
            values = [ROWS[self._kind][1](each) for _, each in rows]
            data = {channel.name: column(channel, values) for channel in self._channels}
            self._items.append(self._sample(rows, data))
            rows.clear()

    def _sample(self, rows: Sequence[tuple[int, Any]], data: dict[str, Any]) -> Sample:
        times = np.array([t_ns for t_ns, _ in rows], np.int64)
        device = [max(0, _stamp_ns(each)) for _, each in rows]
        t_dev_ns = np.array(device, np.int64) if self._has_device_time else None
        return Sample(self.sensor.name, times, data, t_dev_ns)

    def _report_counting(self, t_ns: int) -> None:
        """Report once, and when it changes, whether losses can be counted."""
        connection = self.connection
        counted = connection.join().is_counted(connection.address.topic)
        if counted != self._is_counted:
            self._is_counted = counted
            text = "counted" if counted else "unknown: the messages have no numbers or no publisher"
            self._items.append(State(self.sensor.name, t_ns, {"losses": text}, lasting=True))

    def close(self) -> None:
        """Release the device; its connection stays for the next `open`."""
        self._items.clear()


def _stamp_ns(decoded: Any) -> int:
    return decoded.timestamp if isinstance(decoded, CompressedVideo) else read_stamp(decoded)


def _describe(publisher: Publisher) -> dict[str, str]:
    return {"id": publisher.id.hex(), "node": publisher.node, "qos": publisher.qos}


def describe_loss(stream: str, loss: Loss, last_ns: int) -> Lost:
    """Return the item of a loss; its time is not before `last_ns`."""
    missing = loss.missing
    detail = {"publisher": missing.publisher.hex(), "first_number": missing.first}
    t_ns = max(last_ns, loss.t_mono_ns)
    return Lost(stream, t_ns, missing.cause, missing.count, detail=detail)
