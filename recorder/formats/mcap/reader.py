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

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path

from mcap.opcode import Opcode
from mcap.records import Header, Metadata

from recorder.common.errors import FormatError
from recorder.common.files import Closeable
from recorder.formats.mcap import LogOrder, McapMessage, McapTopic, merge_blocks
from recorder.formats.mcap.index import (
    Entries,
    FileIndex,
    block_records,
    indexed_log_times,
    read_log_times,
)
from recorder.formats.mcap.records import MAGIC, Budget, RawMessage, RecordFile, records


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
        """Yield messages in order of their log times, in bounded memory; see `merge_blocks`.

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
        starts: Sequence[int] = self._index.blocks.start_ns if order is None else order.starts_ns
        budget = Budget()

        def read(block: int) -> tuple[list[tuple[int, McapMessage | _Place]], int]:
            try:
                return self._read_block(block, wanted, (start_ns, end_ns), order, budget)
            except FormatError as error:
                if not passes_damage:
                    raise
                faults = self._read_faults(block, wanted, order, str(error))
                return [(starts[block], fault) for fault in faults], 0

        for found in merge_blocks(
            self._index.blocks.choose(wanted, start_ns, end_ns), starts, read
        ):
            if isinstance(found, McapMessage):
                yield found
                continue
            message, shift_ns, data = found
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
    ) -> tuple[list[tuple[int, McapMessage | _Place]], int]:
        """Return the wanted messages of a block in order of their times, and its bytes."""
        file, (start_ns, end_ns) = self._file, interval_ns
        at = self._index.blocks.offset[block]
        data = block_records(file, self._index.blocks, block, budget)
        found: list[tuple[int, McapMessage | _Place]] = []
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
                found.append((time_ns, (record, shift_ns, data)))
        found.sort(key=itemgetter(0))
        return found, len(data)

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


_Place = tuple[RawMessage, int, bytes]
"""Message, correction of its log time, and the records of its block."""
