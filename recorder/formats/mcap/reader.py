"""Lazy reader of an MCAP file: its topics, and messages in order of their log times.

::

    with McapReader(path) as mcap:
        mcap.topics["/camera/image"].count
        for message in mcap.messages(["/camera/image"], start_ns=t):
            message.log_ns, message.data
        if mcap.damage:
            ...                                       # the unread parts and their offsets

The package ``mcap`` also has a reader, whose record classes this one uses. That reader holds a file
without an index in memory, and trusts lengths.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcap.opcode import Opcode
from mcap.records import Header, Metadata

from recorder.common.errors import FormatError
from recorder.common.files import Closeable
from recorder.formats.mcap import LogOrder, layout
from recorder.formats.mcap.index import (
    Entries,
    FileIndex,
    block_records,
    indexed_log_times,
    read_log_times,
)
from recorder.formats.mcap.records import MAGIC, Budget, RawMessage, RecordFile, records

OPEN_BYTES = 128 << 20
"""Bytes of overlapping chunks that are in memory at once.

Messages of chunks that overlap further are yielded later than their log times.
"""


@dataclass(frozen=True, slots=True)
class McapTopic:
    """Topic of a file.

    Attributes:
        topic: name of the topic.
        schema_name, schema_encoding, schema_data: fields of its schema; empty without a schema.
        message_encoding: ``protobuf``, ``cdr``, ``json`` ...
        count: number of its messages.
        metadata: metadata of its channel.
    """

    topic: str
    schema_name: str
    schema_encoding: str
    schema_data: bytes = field(repr=False)
    message_encoding: str
    count: int
    metadata: Mapping[str, str]

    def is_decoded_as(self, other: McapTopic) -> bool:
        """Return whether messages of both topics are decoded in the same way.

        A topic without a definition is compared by the names of its schema and encoding only.
        """
        if (self.schema_name, self.message_encoding) != (other.schema_name, other.message_encoding):
            return False
        if not self.schema_data or not other.schema_data:
            return True
        return self.schema_encoding == other.schema_encoding and (
            self.schema_data == other.schema_data
            or layout(self.schema_encoding, self.schema_data)
            == layout(other.schema_encoding, other.schema_data)
        )


@dataclass(frozen=True, slots=True)
class McapMessage:
    """Message of a file.

    Attributes:
        topic: name of its topic.
        sequence: number of the message, as its publisher counted.
        log_ns, publish_ns: times at which it was recorded and published.
        data: content of the message.
        shift_ns: correction of the log time, because the clock was set back.
        fault: reason why the message cannot be read; it then has no data.
        count: number of messages with that fault, of the same topic, at the time of the first;
            None: unknown.
    """

    topic: str
    sequence: int
    log_ns: int
    publish_ns: int
    data: bytes = field(repr=False)
    shift_ns: int = 0
    fault: str = ""
    count: int | None = 1

    def read_data(self) -> bytes:
        """Return the data; raise FormatError for a message with a fault."""
        if self.fault:
            raise FormatError(self.fault)
        return self.data

    @property
    def time_ns(self) -> int:
        """Log time without the steps of the recording's clock."""
        return self.log_ns + self.shift_ns


@dataclass(frozen=True, slots=True)
class McapAttachment:
    """File that is attached to an MCAP file."""

    name: str
    media_type: str
    log_ns: int
    create_ns: int
    data: bytes = field(repr=False)


class McapReader(Closeable):
    """MCAP file, opened for reading.

    A file with a summary is read by its index.  A file without a summary (its recorder was killed),
    or with a damaged one, is scanned at the start, up to its end or to the first damage.

    Attributes:
        path: path of the file.
        profile, library: fields of its header.
        topics: topics by name. A channel is left out if its messages are decoded in another way
            than those of an earlier channel of its topic; see `conflicts`.
        conflicts: a line per channel that is left out.
        damage: reason why the file is scanned, and the unread parts with offsets; empty if all is
            read.
        is_cut: whether the end of the file is not read, because the file ends early or is damaged
            there.

    Raises:
        FormatError: the file is not MCAP, or cannot be read; names path and offset.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self.is_cut = False
        self.conflicts: list[str] = []
        self._file = RecordFile(path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        file = self._file
        if file.size < len(MAGIC) or file.read(0, len(MAGIC)) != MAGIC:
            raise file.error(0, "not an MCAP file")
        header = file.place(len(MAGIC))
        if header.opcode != Opcode.HEADER:
            raise file.error(header.start, "the header is missing")
        found = file.parse(header, Header.read)
        self.profile, self.library = found.profile, found.library
        self._index = FileIndex(file)
        try:
            indexed = self._index.read_summary()
        except FormatError as error:
            self.damage = f"{error}; the summary is damaged, so the file was scanned"
            indexed = False
        if not indexed:
            self._index = FileIndex(file)
            lost = self._index.scan(header.end)
            self.damage = "; ".join(text for text in (self.damage, lost) if text)
            self.is_cut = bool(lost)
        self.topics: Mapping[str, McapTopic] = self._topics()

    @property
    def start_ns(self) -> int | None:
        """Earliest log time; None: the file has no message."""
        return self._index.interval_ns[0]

    @property
    def end_ns(self) -> int | None:
        """Latest log time; None: the file has no message."""
        return self._index.interval_ns[1]

    def _topics(self) -> dict[str, McapTopic]:
        """Make the topics by name; remove channels of another schema from the index."""
        found: dict[str, McapTopic] = {}
        for number, channel in sorted(self._index.channels.items()):
            schema = self._index.schemas.get(channel.schema_id)
            topic = McapTopic(
                channel.topic,
                schema.name if schema else "",
                schema.encoding if schema else "",
                schema.data if schema else b"",
                channel.message_encoding,
                self._index.counts.get(number, 0),
                channel.metadata,
            )
            earlier = found.setdefault(channel.topic, topic)
            if earlier is topic:
                continue
            if not earlier.is_decoded_as(topic):
                self.conflicts.append(
                    f"{topic.topic}: {topic.count} messages of {topic.schema_name!r} "
                    f"({topic.message_encoding}) beside those of {earlier.schema_name!r} "
                    f"({earlier.message_encoding}): left out"
                )
                del self._index.channels[number]
                continue
            found[channel.topic] = replace(earlier, count=earlier.count + topic.count)
        return found

    # Messages

    def log_times(self) -> Iterator[tuple[int, dict[int, Entries]]]:
        """Yield log times in the order of the file; see `read_log_times`."""
        return read_log_times(self._file, self._index.blocks)

    @property
    def channels(self) -> Mapping[int, str]:
        """Topic of each channel, by the channel's number."""
        return {number: channel.topic for number, channel in self._index.channels.items()}

    @property
    def block_starts_ns(self) -> Sequence[int]:
        """Earliest log time of each block, as its header has it."""
        return self._index.blocks.start_ns

    def messages(
        self,
        topics: Collection[str] | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        order: LogOrder | None = None,
        *,
        passes_damage: bool = False,
    ) -> Iterator[McapMessage]:
        """Yield messages in order of their log times, in bounded memory; see `OPEN_BYTES`.

        Args:
            topics: names of topics; None: all. Unknown names are ignored.
            start_ns, end_ns: half-open interval of log times; None: open.
            order: corrections of the log times; messages at time 0 then follow the message before
                them in the file.
            passes_damage: whether a damaged chunk yields a message with a fault for each topic.

        Raises:
            FormatError: a chunk is damaged and `passes_damage` is False; names path and offset.
        """
        wanted = {
            number: channel.topic
            for number, channel in self._index.channels.items()
            if topics is None or channel.topic in topics
        }
        waiting = self._index.blocks.choose(wanted, start_ns, end_ns)
        starts: Sequence[int] = self._index.blocks.start_ns
        if order is not None:
            starts = order.starts_ns
            waiting.sort(key=starts.__getitem__)
        waiting.reverse()
        # Chunks may overlap: open each one when its earliest message may be the next.
        queue: list[tuple[int, int, int]] = []  # time, block, number of the message in it
        opened: dict[int, tuple[bytes, list[_Timed]]] = {}
        held, budget = 0, Budget()
        while waiting or queue:
            while waiting and (
                not queue or (starts[waiting[-1]] <= queue[0][0] and held < OPEN_BYTES)
            ):
                block = waiting.pop()
                try:
                    data, found = self._read_block(block, wanted, (start_ns, end_ns), order, budget)
                except FormatError as error:
                    if not passes_damage:
                        raise
                    yield from self._read_faults(block, wanted, order, str(error))
                    continue
                if found:
                    opened[block] = data, found
                    held += len(data)
                    heapq.heappush(queue, (found[0][0], block, 0))
            if not queue:
                return
            _, block, number = queue[0]
            data, found = opened[block]
            _, message, shift_ns = found[number]
            if number + 1 < len(found):
                heapq.heapreplace(queue, (found[number + 1][0], block, number + 1))
            else:
                heapq.heappop(queue)
                del opened[block]
                held -= len(data)
            yield McapMessage(
                wanted[message.channel],
                message.sequence,
                message.log_ns,
                message.publish_ns,
                data[message.start : message.end],
                shift_ns,
            )

    def _read_block(
        self,
        block: int,
        wanted: Mapping[int, str],
        interval_ns: tuple[int | None, int | None],
        order: LogOrder | None,
        budget: Budget,
    ) -> tuple[bytes, list[_Timed]]:
        """Return the records of a block, and its wanted messages in order of their times."""
        file, (start_ns, end_ns) = self._file, interval_ns
        at = self._index.blocks.offset[block]
        data = block_records(file, self._index.blocks, block, budget)
        found: list[_Timed] = []
        before_ns = 0 if order is None else order.starts_ns[block]
        for record in records(data, budget, lambda k, what: file.error(at, f"at byte {k}: {what}")):
            if not isinstance(record, RawMessage):
                continue
            time_ns, shift_ns = record.log_ns, 0
            if order is not None:
                if time_ns:
                    if order.shifts:
                        shift_ns = order.shift_ns(record.channel, block, record.record)
                    before_ns = time_ns + shift_ns
                time_ns = before_ns
            if (
                record.channel in wanted
                and (start_ns is None or record.log_ns >= start_ns)
                and (end_ns is None or record.log_ns < end_ns)
            ):
                found.append((time_ns, record, shift_ns))
        found.sort(key=_time_ns)
        return data, found

    def _read_faults(
        self, block: int, wanted: Mapping[int, str], order: LogOrder | None, fault: str
    ) -> Iterator[McapMessage]:
        """Yield the faults of a damaged chunk, counted by the message indexes after the chunk."""
        blocks = self._index.blocks
        indexed = indexed_log_times(self._file, blocks, block)
        has = blocks.channels[block] if indexed is None else indexed.keys()
        for number, topic in wanted.items():
            if has is not None and number not in has:
                continue
            count, log_ns = None, blocks.start_ns[block]
            if indexed is not None:
                _, times = indexed[number]
                count, log_ns = len(times), int(times.min())
            shift_ns = order.shift_ns(number, block, 0) if order is not None else 0
            yield McapMessage(topic, 0, log_ns, log_ns, b"", shift_ns, fault, count)

    def attachments(self) -> Iterator[McapAttachment]:
        """Yield the attached files; raise FormatError if one is damaged."""
        self._index.find_attached()
        for at in self._index.attachments:
            place = self._file.place(at)
            if place.opcode != Opcode.ATTACHMENT:
                raise self._file.error(
                    at, "the index names an attachment here, but the record is no attachment"
                )
            found = self._file.attachment(place)
            yield McapAttachment(
                found.name, found.media_type, found.log_time, found.create_time, found.data
            )

    def metadata(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the metadata records by name; raise FormatError if one is damaged."""
        self._index.find_attached()
        for at in self._index.metadata:
            place = self._file.place(at)
            if place.opcode != Opcode.METADATA:
                raise self._file.error(at, "the index names a metadata record; there is none")
            found = self._file.parse(place, Metadata.read)
            yield found.name, found.metadata

    def close(self) -> None:
        self._file.close()


_Timed = tuple[int, RawMessage, int]
"""Time, message, and correction of its log time."""


def _time_ns(message: _Timed) -> int:
    return message[0]
