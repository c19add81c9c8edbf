"""The sources ``bag:`` and ``mcap:PATH[#TOPIC]``, which play a topic of any MCAP file or ROS 2 bag.

The topic is of a camera, a lidar, an IMU, a satellite receiver or a CAN bus.

The kit replaces a driver by `McapSource` if the driver declares its kind (`Driver.recorded_kind`).
JPEGs are passed on unchanged; other pictures are encoded by the kit.  An IMU's values become f4, as
in all streams of an IMU: exact for recordings that this recorder made, rounded by at most 6e-8 of
the value where the recording has f8.

Which stamps are used, and in which order messages come, is in `recorder.formats.bags.timing`.
Where a topic's own stamps are of another clock, they are recorded as the device's time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final

from drivers.kit.clouds import CloudStream
from drivers.kit.driver import EndOfSource, Item, Lost, Sample, SensorConfig
from drivers.kit.mcap_rows import (
    can_channels,
    can_values,
    column,
    inertial_channels,
    inertial_values,
    position_channels,
    position_values,
)
from drivers.kit.recorded_source import (
    SHORT_BATCH_NS,
    RecordedSource,
    median_rate_hz,
)
from drivers.kit.topics.pictures import NO_KEYFRAME, PictureConverter, picture_data
from recorder.bus.messages import CHANGED
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, SourceError, StreamChangedError
from recorder.formats.bags.bag import Bag, Cut
from recorder.formats.bags.contents import LOSSES, choose_topic, find_content, origin_ns
from recorder.formats.bags.messages import Kind, Loss, decode_loss
from recorder.formats.bags.timing import (
    DECIDING,
    Stamping,
    Timed,
    Timing,
    order_messages,
    read_stamp,
)

if TYPE_CHECKING:
    from recorder.formats.mcap import McapMessage

KINDS: Final = {
    "camera": Kind.PICTURES,
    "lidar": Kind.CLOUDS,
    "imu": Kind.IMU,
    "position": Kind.POSITIONS,
    "can": Kind.CAN_FRAMES,
}
"""Kinds of topics that a driver may play, by `Driver.recorded_kind`."""

ROWS: Final[Mapping[Kind, tuple[Callable[[Any], Any], Callable[[Any], dict[str, Any]]]]] = {
    Kind.IMU: (inertial_channels, inertial_values),
    Kind.POSITIONS: (position_channels, position_values),
    Kind.CAN_FRAMES: (can_channels, can_values),
}
"""Of kinds whose samples go together: channels of the first messages, and a message's values."""
_LOOKED_AT: Final = DECIDING  # messages that the rate and the channels are taken from
_LOOKED_BYTES: Final = 32 << 20
_BATCH_NS: Final = {"realtime": SHORT_BATCH_NS, "max": 1_000_000_000}
_LONGEST_BATCH: Final = 1000


def open_bag(sensor: SensorConfig) -> tuple[Bag, str]:
    """Open the recording of a ``bag`` source; return it and the topic after the ``#``, or "".

    Raises:
        SourceError: the file does not exist, is no recording, or cannot be read.
    """
    path, wanted = sensor.path_and_part()
    try:
        return Bag(path), wanted or ""
    except (OSError, FormatError) as error:
        raise sensor.fault(error) from None


def clock_steps(bag: Bag) -> list[tuple[int, str]]:
    """Return the steps of a recording's clock: each in ns, with a sentence about it."""
    return [
        (
            step.step_ns,
            f"{bag.path.name}: the clock of the recording was set back by "
            f"{-step.step_ns / 1e9:.3f} s, at {step.before_ns / 1e9:.3f} s; the times of all "
            "topics continue without the step",
        )
        for step in bag.steps
    ]


class McapSource(RecordedSource):
    """Source that plays one topic of a recording.

    Stamps count from the earliest message of the whole recording, so that several topics played
    from it keep their relative times.  A message that cannot be decoded is `Lost`, cause
    ``corrupt``; a message that has no time is `Lost`, cause ``time``.  Losses that this recorder
    counted in its archives are `Lost`, cause ``recorded``.  A file whose recorder was killed plays
    as far as it is whole, and an interval of loss follows, cause ``truncated``.  Messages that the
    recorder did not receive or write are in no recording, so their number is unknown.
    """

    ordered = True
    _bag: Bag | None = None
    _played: Bag | None = None  # stays when the source is closed
    _messages: Generator[Timed | Cut] | None = None
    _held: Timed | Cut | None = None
    _damage: SourceError | None = None

    def __init__(self, sensor: SensorConfig, kind: str) -> None:
        """Make a source for a driver of a kind: a key of `KINDS`."""
        super().__init__(sensor)
        self._kind = KINDS[kind]
        self._channels: tuple[ChannelSpec, ...] = ()
        self._decode_loss: Callable[[Any], Loss] = decode_loss

    @property
    def origin_ns(self) -> int | None:
        """The earliest time of the recording's messages that drivers play; None before `open`."""
        if self._origin_ns is None and self._played is not None:
            try:
                self._origin_ns = origin_ns(self._played)
            except (OSError, FormatError) as error:
                raise self.sensor.fault(error) from None
        return self._origin_ns

    def _open(self) -> StreamSpec:
        bag, wanted = open_bag(self.sensor)
        self._bag = self._played = bag
        self.clock_steps = clock_steps(bag)
        self._topic, content = choose_topic(bag, self._kind, wanted, self.sensor.name)
        self._decode: Callable[[Any], Any] = content.decode
        topic = bag.topics[self._topic]
        self._pictures = PictureConverter(self._topic)
        first = self._look(bag)
        message, decoded = first[0]
        pairs = [(read_stamp(d), m.log_ns if bag.is_timed(m) else 0) for m, d in first]
        stamping = Stamping.of(pairs)
        self._of_header, self._last_ns, self._reported = stamping.of_header, 0, 0
        settings: dict[str, Any] = {
            "mcap_topic": self._topic,
            "mcap_schema": topic.schema_name,
            "mcap_stamps": "header" if self._of_header else "log time",
        }
        if self._kind is Kind.PICTURES:
            assert self._pictures.channel is not None
            self._channels = (self._pictures.channel,)
            self._has_device_time = not self._of_header and read_stamp(decoded) > 0
            settings["mcap_frame"] = decoded.header.frame_id
            settings["jpeg_quality"] = self.sensor.options.get("quality") or 90
            settings |= self._pictures.settings(decoded)
            self._pictures = PictureConverter(self._topic)  # plays from the first message on
        elif self._kind is Kind.CLOUDS:
            self._clouds = CloudStream([decoded for _, decoded in first])
            self._channels = self._clouds.channels
            self._has_device_time = not self._of_header and read_stamp(decoded) > 0
            settings["mcap_frame"] = decoded.header.frame_id
            settings |= self._clouds.settings
        else:
            values = [decoded for _, decoded in first]
            self._channels = ROWS[self._kind][0](values)
            of_device = getattr(decoded, "t_dev_ns", None) is not None
            other = not self._of_header and read_stamp(decoded) > 0
            self._has_device_time = of_device or other
            # The recorder's own JSON names no frame; its frames are the sensors' names.
            named = decoded.header if self._kind is Kind.CAN_FRAMES else decoded
            settings["mcap_frame"] = named.frame_id or self._topic.strip("/").partition("/")[0]
        times = sorted(stamping.t_ns(read_stamp(d), m.log_ns, m.shift_ns) for m, d in first)
        decoders: dict[str, Callable[[Any], Any] | None] = {self._topic: self._decode}
        if LOSSES in bag.topics and find_content(bag.topics[LOSSES]).kind is Kind.LOSSES:
            decoders[LOSSES] = None
            self._decode_loss = find_content(bag.topics[LOSSES]).decode
        self._timing = Timing(bag, decoders)
        self._messages, self._held = order_messages(bag, self._timing), None
        return StreamSpec(
            self.sensor.name,
            self._channels,
            rate_hz=median_rate_hz(times, 1e9),
            device_clock=self._has_device_time,
            finite=True,
            description=f"topic {self._topic} of a recording",
            settings=settings,
            bytes_per_sample=self._estimate_bytes(message),
        )

    def _estimate_bytes(self, message: McapMessage) -> int:
        """Return the expected bytes of a sample; 0: those of its channels."""
        if self._kind is Kind.CLOUDS:
            return self._clouds.bytes_per_sample
        return len(message.data) if self._kind is Kind.PICTURES else 0

    def _look(self, bag: Bag) -> list[tuple[McapMessage, Any]]:
        """Return the first messages that can be decoded, with their contents.

        Raises:
            FormatError: no message can be decoded; the reason is that of the first.
        """
        found: list[tuple[McapMessage, Any]] = []
        problem: FormatError | None = None
        held = 0
        messages = bag.messages([self._topic])
        try:
            for number, message in enumerate(messages):
                try:
                    decoded = self._decode(message.read_data())
                    if self._kind is Kind.PICTURES and self._pictures.convert(decoded) is None:
                        raise FormatError(NO_KEYFRAME)
                    found.append((message, decoded))
                except FormatError as error:
                    problem = problem or error
                held += len(message.data)
                enough = number + 1 >= _LOOKED_AT or held > _LOOKED_BYTES
                if enough and (found or number >= 100 * _LOOKED_AT):
                    break
        except FormatError:
            if not found:  # else reported where the damage is reached
                raise
        finally:
            messages.close()
        if not found:
            raise FormatError(f"topic {self._topic!r:.200} cannot be played: {problem}")
        return found

    def read(self) -> Item:
        """Return the next picture, or the IMU's values of the next time.

        Raises:
            EndOfSource: the topic's last message was already returned.
            SourceError: the file is damaged.
        """
        if self._messages is None:
            raise SourceError(f"{self.sensor.name}: read before open")
        while (item := self._next()) is not None:
            self._report()
            if isinstance(item, Cut):
                return self._truncated(item.reason, self._last_ns)
            if item.message.topic != LOSSES:
                return self._item(item)
            if (lost := self._convert_loss(item.message)) is not None:
                return lost
        self._report()
        self.replaced_stamps = self._timing.unused
        raise EndOfSource

    def _report(self) -> None:
        """Report steps of the topic's own stamps to the kit."""
        steps = self._timing.steps(self._topic)
        for step in steps[self._reported :]:
            text = f"its stamps were set back by {-step.step_ns / 1e9:.3f} s, and the times of the "
            text += "log were not; stored without the step"
            self.stream_steps.append((self.sensor.name, step.step_ns, text))
        self._reported = len(steps)

    def _item(self, timed: Timed) -> Item:
        if timed.problem is not None:
            return self._corrupt(timed, timed.problem)
        if timed.t_ns is None:
            reason = "the message has no time: its log time is 0, and its stamp cannot be true"
            return self._lost(timed, "time", reason)
        if self._kind is Kind.CLOUDS:
            return self._sweep(timed)
        if self._kind is not Kind.PICTURES:
            return self._batch(timed)
        try:
            picture = self._pictures.convert(timed.decoded)
        except StreamChangedError as error:
            return self._lost(timed, CHANGED, str(error))
        except FormatError as error:
            return self._corrupt(timed, error)
        if picture is None:
            return self._lost(timed, "joining", NO_KEYFRAME)
        t_ns, t_dev_ns = self._times(timed)
        return self._sample([t_ns], [t_dev_ns], picture_data(self._channels[0], picture))

    def _sweep(self, timed: Timed) -> Item:
        try:
            data, end_ns = self._clouds.convert(timed.decoded)
        except StreamChangedError as error:
            return self._lost(timed, CHANGED, str(error))
        t_ns, t_dev_ns = self._times(timed, end_ns)
        return self._sample([t_ns], [t_dev_ns], data)

    def _batch(self, timed: Timed) -> Sample:
        values_of = ROWS[self._kind][1]
        rows: list[dict[str, Any]] = []
        times: list[int] = []
        device: list[int] = []
        until_ns: int | None = None
        while True:
            t_ns, t_dev_ns = self._times(timed)
            until_ns = t_ns + _BATCH_NS[self.sensor.pace] if until_ns is None else until_ns
            rows.append(values_of(timed.decoded))
            times.append(t_ns)
            device.append(t_dev_ns)
            try:
                following = self._next()
            except SourceError:
                break  # raised again by the next call, after these values
            if following is None:
                break
            if (
                isinstance(following, Cut)
                or following.message.topic == LOSSES
                or following.problem is not None
                or following.t_ns is None
                or following.t_ns >= until_ns
                or len(rows) >= _LONGEST_BATCH
            ):
                self._held = following
                break
            timed = following
        data = {channel.name: column(channel, rows) for channel in self._channels}
        return self._sample(times, device, data)

    def _times(self, timed: Timed, shift_ns: int = 0) -> tuple[int, int]:
        """Return a message's own time, which never decreases, and the device's time, in ns.

        Args:
            timed: the message.
            shift_ns: what both are later than the message's.
        """
        assert timed.t_ns is not None
        self._last_ns = max(self._last_ns, timed.t_ns + shift_ns)
        own = getattr(timed.decoded, "t_dev_ns", None)
        own = own if own is not None else read_stamp(timed.decoded)
        return self._last_ns, max(0, own + shift_ns)

    def _corrupt(self, timed: Timed, error: FormatError) -> Lost:
        return self._lost(timed, "corrupt", str(error))

    def _lost(self, timed: Timed, cause: str, reason: str) -> Lost:
        detail = {"reason": reason, "log_ns": timed.message.log_ns}
        t_ns = self._last_ns or timed.t_ns or self.origin_ns or 0
        return Lost(self.sensor.name, t_ns, cause, timed.message.count, detail=detail)

    def _convert_loss(self, message: McapMessage) -> Lost | None:
        """Return a loss that this recorder counted in the stream of the topic; None: of another."""
        try:
            loss: Loss = self._decode_loss(message.read_data())
        except FormatError as error:
            detail = {"reason": str(error)}
            return Lost(self.sensor.name, message.time_ns, "recorded", None, detail=detail)
        if loss.stream != self._topic.strip("/").partition("/")[0]:
            return None
        return Lost(
            self.sensor.name,
            message.time_ns,
            "recorded",
            loss.count,
            loss.estimate,
            {"recorded_cause": loss.cause},
        )

    def _next(self) -> Timed | Cut | None:
        held, self._held = self._held, None
        if held is not None:
            return held
        if self._damage is not None:
            raise self._damage
        assert self._messages is not None
        try:
            return next(self._messages, None)
        except (FormatError, OSError) as error:
            self._damage = self.sensor.fault(error)
            raise self._damage from None

    def close(self) -> None:
        """Close the recording."""
        if self._messages is not None:
            self._messages.close()
            self._messages = None
        self._held = self._damage = None
        if self._bag is not None:
            self._bag.close()
            self._bag = None
