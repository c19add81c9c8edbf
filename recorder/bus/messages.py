"""Values of the messages between supervisor, writer and drivers, and their checks.

Both ends use these structs. The sender makes one and sends its `message`. The receiver reads one
from a message, and every field then has the declared type::

    socket.send(Finish(session=key).message())
    finish = Finish.of(message)          # ProtocolError: finish: session: is missing

The order of the fields is the order of the keys on the wire (`recorder.bus.wire`). Samples
carry no values. The values of a ``state`` message are any JSON, defined by the driver.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ProtocolError
from recorder.common.struct_codec import Count, WireStruct, check_json, decode_values

Positions = dict[str, tuple[int, int, int]]
"""Positions by stream: epoch, and two message numbers in it."""

CHANGED = "changed"
"""Cause of loss, and of a stream's end: samples do not have the form that the stream declares."""
FROZEN, MOVES = "frozen", "moves"
"""Causes of events that drivers report.

`FROZEN`: a device repeats one sample under new stamps. `MOVES`: its samples differ again.
"""

_Number = Annotated[int, Meta(ge=0, le=10**9)] | Annotated[float, Meta(ge=0, le=1e9)]
_Text = Annotated[str, Meta(pattern=r"^[^\x00]*$")]


class Values(WireStruct):
    """Values of one kind of message."""

    kind: ClassVar[Kind]

    def message(self, number: int = 0) -> Message:
        """Make a message that carries the values."""
        return Message(self.kind, number=number, values=self.to_wire())

    @classmethod
    def of(cls, message: Message) -> Self:
        """Read the values of a message of this kind.

        Raises:
            ProtocolError: names message, field and what is wrong with it.
        """
        return decode_values(message.values, cls, str(cls.kind))


# Drivers and the writer


class Join(Values):
    """Introduction of a driver to the writer.

    Attributes:
        sensor: its sensor's name.
        streams: its streams' declarations (`StreamSpec.to_wire`).
        since_ns: start of its process, CLOCK_MONOTONIC; 0: not known.
    """

    kind: ClassVar[Kind] = Kind.JOIN
    sensor: str
    streams: list[dict[str, Any]]
    since_ns: int = 0

    def specs(self) -> dict[str, StreamSpec]:
        """Read the streams' declarations by name.

        Raises:
            ProtocolError: a declaration is wrong.
        """
        specs = {}
        for wire in self.streams:
            spec = StreamSpec.from_wire(wire)
            decode_values(
                wire, StreamSpec, f"join: stream {spec.name!r}"
            )  # the types of its fields
            specs[spec.name] = spec
        return specs


class TapJoin(Values):
    """Announcement of one stream by a tap."""

    kind: ClassVar[Kind] = Kind.JOIN
    stream: dict[str, Any]


class AnnouncedSession(WireStruct, frozen=True):  # type: ignore[misc]  # msgspec allows it
    """A session as the writer announces it to drivers.

    Attributes:
        key: name of the session on the bus.
        start_ns: its start, CLOCK_MONOTONIC.
        until_ns: the session takes no samples at or after this time; None: no end is set.
        last_ns: latest ``t_mono`` of this sensor's streams in the session, or in one that it
            continues; None: none is recorded yet.
        seam_ns: own start of a session that continues another, from which it takes samples;
            `start_ns` is then the start of the first session.
        source_start_ns: stamp of the played sources that is played at the start; unset: the first
            stamp of each source.
    """

    key: str
    start_ns: int
    until_ns: int | None
    last_ns: int | None
    seam_ns: int | None = None
    source_start_ns: int | UnsetType = UNSET

    @property
    def begin_ns(self) -> int:
        """Own start of the session, CLOCK_MONOTONIC."""
        return self.start_ns if self.seam_ns is None else self.seam_ns

    def continues(self, other: AnnouncedSession) -> bool:
        """Return whether the session is the other one, or a later part of the same recording."""
        same = self.seam_ns is not None and self.start_ns == other.start_ns
        return same or self.key == other.key


class Hello(Values):
    """Answer of the writer to a driver.

    Attributes:
        session: the session that the driver is in; None if none is open.
        next: the session to cross to; None if the driver has crossed, or does not need to.
        crossing: key of the session that another continues and that is not closed yet: the driver
            still sends its messages for that session.
        positions: by stream: epoch, message expected next, message that is appended next.
        buffer_bytes, window_bytes: the driver's ring, and its credit.
    """

    kind: ClassVar[Kind] = Kind.HELLO
    session: AnnouncedSession | None
    next: AnnouncedSession | None
    crossing: str | None
    positions: Positions
    buffer_bytes: Count
    window_bytes: Count


class Ack(Values):
    """Acknowledgement of the messages that the writer has from a driver.

    Attributes:
        positions: by stream: epoch, and the numbers of the messages that become durable and are
            appended next.
    """

    kind: ClassVar[Kind] = Kind.ACK
    positions: Positions


class Finish(Values):
    """Request to end the session of a key: the driver flushes, then sends ``end``."""

    kind: ClassVar[Kind] = Kind.FINISH
    session: str


class Fault(Values):
    """Refusal of a message that a peer has sent."""

    kind: ClassVar[Kind] = Kind.FAULT
    text: str = msgspec.field(name="message")


class Lost(Values, forbid_unknown_fields=False):
    """Report of a loss by a driver; further keys are its details."""

    kind: ClassVar[Kind] = Kind.LOST
    cause: str | UnsetType = UNSET
    duration_ns: int | UnsetType | None = UNSET
    estimate: int | UnsetType | None = UNSET


class Incomplete(WireStruct, frozen=True):  # type: ignore[misc]  # msgspec allows it
    """Counts of stored samples that lack parts, and of the parts (columns, packets) they lack."""

    samples: Count
    parts: Count


class SampleState(Struct, frozen=True):
    """Part of a ``state`` message for the writer.

    Attributes:
        incomplete: samples that lack parts, by cause.  The counts cover samples that the driver
            sent before the message; each sample is counted under one cause.
        absent_streams: names of all streams that the config names and that the device does not
            have now, such as topics without a publisher.
    """

    incomplete: dict[str, Incomplete] = {}
    absent_streams: list[str] = []


class End(Values, forbid_unknown_fields=False):
    """End of a stream by its driver."""

    kind: ClassVar[Kind] = Kind.END
    reason: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


# The supervisor and the writer


class SensorHeader(Struct):
    """Entry of a sensor in ``session.json``, for the rate check and the loss accounts."""

    driver: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    streams: list[str] | UnsetType = UNSET
    live: bool | UnsetType = UNSET
    min_rate: float | UnsetType | None = UNSET
    max_incomplete: float | UnsetType = UNSET


class SessionPlan(WireStruct):
    """Plan of a session, which the supervisor sends to the writer.

    Attributes:
        root: folder of sessions; created if it is missing.
        name: wanted name; ``_2``, ``_3`` is appended where it is taken.
        exact_name: whether the user asked for this name: if it is taken, that is an error.
        config_text: the config file as it was, passwords masked.
        calibration_text: the calibration file's text; None without a file.
        metadata: free form, from the config and the command line.
        sensors: by sensor name: driver, source, names of streams (`SensorHeader`).
        sync_interval_ms, min_free_gb: see the config's ``storage``.
        duration_s: samples beyond this time are not recorded; None: no end is set.
        record_format: streams whose data go into ``session.vrs``; None: no such file is written.
        record_compression: compression of its records: ``none`` (or unset), ``lz4`` or ``zstd``.
        previous: name of the session that this one continues; None: of none.
        previous_folder: folder of that session, if that is not `root`; else unset.
        play_start_mono_ns: start of the first session of that series, from which played sources
            count; None: this is the first.
        source_start_ns: epoch ns at which the played sources begin, which is the session's start:
            its times are those of the sources; None: the session starts now.
        offset_ns: epoch ns minus CLOCK_MONOTONIC, of the session that this one continues, so that
            the clock does not step at the seam; unset: the clocks are read.
        ring: whether the session is a part of a ring, deleted unless an event keeps it; else unset.
        origin: the sessions that a clip was cut from (docs/clips.md); else unset.
        signing_key: path of the vehicle's key, which signs the session when it is closed; else
            unset.
    """

    root: _Text
    name: _Text
    exact_name: bool
    config_text: str
    calibration_text: str | None = None
    metadata: dict[str, Any] = {}
    sensors: dict[str, dict[str, Any]] = {}
    sync_interval_ms: _Number = 200.0
    min_free_gb: _Number = 0.0
    duration_s: _Number | None = None
    record_format: list[str] | None = None
    previous: str | None = None
    play_start_mono_ns: int | None = None
    source_start_ns: Count | None = None
    offset_ns: int | UnsetType = UNSET
    record_compression: _Text | UnsetType = UNSET
    previous_folder: str | UnsetType = UNSET
    ring: bool | UnsetType = UNSET
    origin: dict[str, Any] | UnsetType = UNSET
    signing_key: str | UnsetType = UNSET


class Command(Values, tag_field="op"):
    """Request of the supervisor; the writer answers with a `Reply` of the same number."""

    kind: ClassVar[Kind] = Kind.COMMAND

    @property
    def op(self) -> str:
        """Name of the command."""
        return str(self.__struct_config__.tag)


class Planned(Command):
    """A command with the plan of a session."""

    plan: SessionPlan

    def __post_init__(self) -> None:
        check_json({"metadata": self.plan.metadata, "sensors": self.plan.sensors})


class Start(Planned, tag="start"):
    """Command to begin a session."""


class Split(Planned, tag="split"):
    """Command to continue in a new session; answered when the session before is closed.

    Attributes:
        plan: plan of the new session.
        live: sensors whose drivers are alive; None: all sensors of the session's plan.
        session: folder of the session that is split; None: the open session.
    """

    live: list[str] | None = None
    session: _Text | None = None


class Stop(Command, tag="stop"):
    """Command to end the session; answered when it is closed.

    Attributes:
        live: sensors whose drivers are alive.
        grace_s: time to wait for these drivers, in s.
    """

    live: list[str]
    grace_s: Annotated[float, Meta(ge=0, le=1e9)]


class PutEvent(Command, tag="event"):
    """Command to put an event into the session.

    Attributes:
        event: ``kind``, ``stream`` and ``cause``, which are texts; ``age_ns``, the event's age;
            further keys are details.
    """

    event: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.event.get("kind"), str):
            raise ValueError("event.kind: is missing, or not a text")
        age_ns = self.event.get("age_ns", 0)
        if not isinstance(age_ns, int) or age_ns < 0:
            raise ValueError("event.age_ns: is not a whole number of ns")
        for key in ("stream", "cause"):
            if not isinstance(self.event.get(key, ""), str):
                raise ValueError(f"event.{key}: is not a text")
        if taken := {"t_ns", "self"} & self.event.keys():
            raise ValueError(f"event.{min(taken)}: is not for a detail")
        check_json(self.event)


class AskStatus(Command, tag="status"):
    """Command to report the writer's status."""


class Quit(Command, tag="quit"):
    """Command to end the writer; an open session stays as it is in the journal."""


_COMMANDS: dict[str, type[Command]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (Start, Split, Stop, PutEvent, AskStatus, Quit)
}


def read_command(message: Message) -> Command:
    """Read the command in a message.

    Raises:
        ProtocolError: the command is unknown, or one of its fields is wrong.
    """
    op = message.values.get("op")
    kind = _COMMANDS.get(op) if isinstance(op, str) else None
    if kind is None:
        raise ProtocolError(f"no command {op!r}")
    command = decode_values(message.values, kind, f"{op} command")
    if isinstance(command, Planned):
        for sensor, header in command.plan.sensors.items():
            decode_values(header, SensorHeader, f"{op} command: plan.sensors.{sensor}")
    return command


class Reply(Values):
    """Answer of the writer to a command."""

    kind: ClassVar[Kind] = Kind.STATUS


class Refusal(Reply):
    """Error of a command; `exit_code` is that of the error."""

    error: str
    exit_code: int


class Ending(Reply):
    """End of a session.

    Attributes:
        closed: the session's folder; None if there was no session.
        streams: positions by stream, with samples, bytes and losses.
        sealed: reason of a disk failure; None without a failure.
        full: reason why the session ended early, for lack of free space; None if it did not.
    """

    closed: str | None
    streams: dict[str, dict[str, Any]] = {}
    sealed: str | None = None
    full: str | None = None


class Status(Reply):
    """Status of the writer; most fields are set only while a session is recorded.

    Attributes:
        sensors: names of streams by sensor that has joined.
        session: folder of the open session; None without one.
        ended: end of the session before; None if there was none, or another was begun.
        start_ns, start_mono_ns: start of the open session, as its ``session.json`` has it.
        streams: as in `Ending`, for the open session.
        oldest_uncommitted_s: age of the oldest sample that is not durable.
        commits, commit_s, commit_last_s, commit_max_s: count of commits, and their durations.
        splitting: whether a session that it continues is not closed yet, or one that continues it
            is being made.
        previous: end of the session that was split; in the answer to a `Split` only.
    """

    sensors: dict[str, list[str]] = {}
    session: str | None = None
    ended: Ending | None = None
    start_ns: int | UnsetType = UNSET
    start_mono_ns: int | UnsetType = UNSET
    streams: dict[str, dict[str, Any]] | UnsetType = UNSET
    oldest_uncommitted_s: float | UnsetType = UNSET
    commits: int | UnsetType = UNSET
    commit_s: float | UnsetType = UNSET
    commit_last_s: float | UnsetType = UNSET
    commit_max_s: float | UnsetType = UNSET
    splitting: bool | UnsetType = UNSET
    previous: Ending | UnsetType = UNSET


def read_reply(message: Message) -> Reply:
    """Read the writer's answer in a message.

    Raises:
        ProtocolError: a field is wrong; names the field.
    """
    values = message.values
    kind = Refusal if "error" in values else Ending if "closed" in values else Status
    return decode_values(values, kind, f"{kind.__name__.lower()} reply")
