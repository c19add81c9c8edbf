"""Recording of messages: one file of MCAP or SQLite, or a ROS 2 bag, which is a folder of them.

    with Bag(Path("drive_2026_05_01")) as bag:       # or Path("drive.mcap"), Path("drive_0.db3")
        for message in bag.messages({"/camera/image"}):
            ...

A bag's folder has ``metadata.yaml`` (rosbag2, ``rosbag2_bagfile_information``), which lists its
files. If the recorder was killed before it wrote this file, the bag is all files of the folder in
the order of their numbers.  Files that are compressed as a whole (``.mcap.zstd``, ``.db3.zstd``)
are decompressed into a temporary folder (`recorder.formats.bags.files`).

The messages of all files are ordered by their log times. If the recording's clock was set back
(`recorder.formats.bags.clock`), later log times are corrected by that step.
"""

from __future__ import annotations

import contextlib
import heapq
import re
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml
import zstandard

from recorder.common.errors import FormatError
from recorder.common.files import Closeable
from recorder.formats.bags.clock import LATE_NS, RecordingClock, Times
from recorder.formats.bags.files import (
    MAGICS,
    SUFFIXES,
    ZSTD,
    MessageFiles,
    MessageReader,
    read_magic,
)
from recorder.formats.mcap import TYPE_HASH, LogOrder, McapMessage, McapTopic, pack_place

METADATA: Final = "metadata.yaml"
_INFORMATION: Final = "rosbag2_bagfile_information"
LATEST_NS: Final = (1 << 63) - 1
"""Latest time that the recorder can represent, epoch ns as int64; MCAP has uint64."""
_PART_NUMBER: Final = re.compile(
    r"^\d+_|_\d{4}_\d\d_\d\d-\d\d_\d\d_\d\d$|\d+$"
)  # Lyrical's, others'
_STORAGES: Final = ("mcap", "sqlite3")
_ANY: Final = 128 << 20  # bytes of a message that was compressed, however few are stored
_LONGEST: Final = 1 << 30  # bytes of such a message
_MOST_RATIO: Final = 1000  # bytes per stored byte, above _ANY
_FILE_BITS: Final = 62  # of a place in a file


@dataclass(frozen=True, slots=True)
class _Metadata:
    """Fields of ``metadata.yaml`` that the reader needs."""

    files: tuple[Path, ...]
    compressed: bool = False  # each message by itself, zstd
    numbered: bool = False  # the files continue each other in this order
    counts: Mapping[str, int] = field(default_factory=dict)  # messages by topic
    hashes: Mapping[str, str] = field(default_factory=dict)  # of types by topic


@dataclass(frozen=True, slots=True)
class Cut:
    """Early end of a recording's file, or a file that cannot be read.

    Attributes:
        time_ns: corrected log time of the last message that is read from the file, or from the file
            before.
        reason: reason of the early end.
    """

    time_ns: int
    reason: str


@dataclass(slots=True)
class _File:
    """First time of a file, and the corrections of its log times."""

    start_ns: int
    order: LogOrder


class Bag(Closeable):
    """Reader of a recording's files in one order; see the module.

    A file is open while its messages are read. A damaged file, which had to be scanned, stays open
    until `close`.

    Args:
        path: a file of MCAP or SQLite, or the folder of a ROS 2 bag.

    Attributes:
        path: the path as given.
        topics: topics of all files by name, each with the `count` of all files.
        start_ns, end_ns: earliest and latest log time, corrected; None without a message.
            Messages at time 0 count only if the recording begins there.
        profile: profile in the files' headers, such as ``ros2``.
        cuts: early ends, and unreadable files beside readable ones, by their times.
        steps: steps back of the recording's clock.
        conflicts: a line for each channel that is not read, because its type differs from its
            topic's, and for each topic of which ``metadata.yaml`` lists more messages than can be
            read.

    Raises:
        FormatError: no file is of MCAP or SQLite, or all are damaged, the folder is not a bag, or
            the package that reads MCAP is missing.
        OSError: a file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        metadata = _read_metadata(path) if path.is_dir() else _Metadata((path,))
        self._compressed = metadata.compressed
        self.topics: dict[str, McapTopic] = {}
        self.profile = ""
        self.conflicts: list[str] = []
        self._scanned: dict[Path, MessageReader] = {}
        self._opener = MessageFiles()
        self._files: dict[Path, _File] = {}
        self._untimed = False
        looks: list[_Look] = []
        unread: list[tuple[int, FormatError]] = []  # number of files before, and the reason
        clock = RecordingClock()
        try:
            for number, file in enumerate(metadata.files):
                before = looks[-1] if looks and metadata.numbered else None
                try:
                    looks.append(self._look(file, number, clock, before))
                except FormatError as error:
                    unread.append((len(looks), error))
            if unread and not looks:
                raise unread[0][1]
        except BaseException:
            self.close()
            raise
        clock.finish()
        self.steps = tuple(clock.steps)
        ends = [end for look in looks if (end := self._correct(look, clock)) is not None]
        starts = [file.start_ns for file in self._files.values()]
        if self._untimed and min(starts, default=0) <= LATE_NS:
            starts.append(0)
        self.start_ns: int | None = min(starts, default=None)
        self.end_ns: int | None = max(ends, default=self.start_ns)
        cuts = [Cut(look.end_ns, look.tail) for look in looks if look.tail is not None]
        for count, reason in unread:
            before_ns = looks[count - 1].end_ns if count else self.start_ns or 0
            cuts.append(Cut(before_ns, str(reason).removeprefix(f"{path}/")))
        self.cuts = sorted(cuts, key=lambda cut: cut.time_ns)
        for topic, type_hash in metadata.hashes.items():
            if (known := self.topics.get(topic)) is not None and TYPE_HASH not in known.metadata:
                self.topics[topic] = replace(
                    known, metadata={**known.metadata, TYPE_HASH: type_hash}
                )
        for topic, count in metadata.counts.items():
            found = self.topics[topic].count if topic in self.topics else 0
            if count > found:
                text = f"{found} of {count} messages that {METADATA} lists can be read"
                self.conflicts.append(f"{topic}: {text}")

    def _look(self, file: Path, number: int, clock: RecordingClock, before: _Look | None) -> _Look:
        """Read a file's topics and times; `before` is the file that it may continue."""
        reader = self._opener.open(file)
        look = _Look(file, number)
        try:
            self._take_topics(reader.topics)
            self.conflicts += reader.conflicts
            self.profile = self.profile or reader.profile
            if reader.is_cut:
                text = reader.damage.removeprefix(f"{file}: ")
                look.tail = text if file == self.path else f"{file.name}: {text}"
            if reader.start_ns is not None and reader.end_ns is not None:
                if reader.end_ns > LATEST_NS:
                    text = "later than the recorder's last time, in the year 2262"
                    raise FormatError(f"{file}: a log time of {reader.end_ns} ns: {text}")
                look.channels = dict(reader.channels)
                look.block_starts_ns = list(reader.block_starts_ns)
                look.has_messages = True
                self._untimed |= look.take(reader, clock, before)
        finally:
            if reader.damage:  # finding its messages again would take another scan
                self._scanned[file] = reader
            else:
                reader.close()
        return look

    def _correct(self, look: _Look, clock: RecordingClock) -> int | None:
        """Compute the corrections of a file's log times; return its latest time."""
        if not look.has_messages:
            return None
        order = look.order(clock)
        timed = [start for start in order.starts_ns if start]
        self._files[look.file] = _File(min(timed, default=0), order)
        look.end_ns = max(
            (t + order.shift_ns(n, block, at) for n, (block, at, t) in look.latest.items()),
            default=0,
        )
        return look.end_ns

    def is_timed(self, message: McapMessage) -> bool:
        """Return whether a message has a log time.

        Log time 0 means no time, unless the recording begins at time 0.
        """
        return message.log_ns > 0 or self.start_ns == 0

    @property
    def duration_s(self) -> float:
        """Time from the earliest log time to the latest, in s."""
        return ((self.end_ns or 0) - (self.start_ns or 0)) / 1e9

    def _take_topics(self, topics: Mapping[str, McapTopic]) -> None:
        for name, topic in topics.items():
            known = self.topics.get(name)
            if known is not None and not topic.is_decoded_as(known):
                self.conflicts.append(
                    f"{name}: {topic.count} messages of {topic.schema_name!r} "
                    f"({topic.message_encoding}) beside those of {known.schema_name!r} "
                    f"({known.message_encoding}): left out"
                )
                continue
            if known is not None:
                topic = replace(known, count=known.count + topic.count)
            self.topics[name] = topic

    def messages(self, topics: Collection[str]) -> Generator[McapMessage]:
        """Yield the messages of some topics in the order of their corrected log times.

        A message that cannot be read has a fault: its chunk is damaged, or its own compressed data
        are.

        Raises:
            FormatError: a file cannot be read; the messages before have been yielded.
        """
        waiting = sorted(self._files, key=lambda file: self._files[file].start_ns, reverse=True)
        queue: list[tuple[int, int, McapMessage, Generator[McapMessage]]] = []
        try:
            while waiting or queue:
                if waiting and (not queue or self._files[waiting[-1]].start_ns <= queue[0][0]):
                    number, file = len(waiting), waiting.pop()
                    time_ns = self._files[file].start_ns
                    found = self._read_messages(file, topics)
                else:
                    time_ns, number, message, found = heapq.heappop(queue)
                    yield message
                if (following := next(found, None)) is not None:
                    # A message at time 0 follows the message before it.
                    time_ns = following.time_ns if following.log_ns else time_ns
                    heapq.heappush(queue, (time_ns, number, following, found))
        finally:
            for _, _, _, found in queue:
                found.close()

    def _read_messages(self, file: Path, topics: Collection[str]) -> Generator[McapMessage]:
        with contextlib.ExitStack() as stack:
            if (reader := self._scanned.get(file)) is None:
                reader = stack.enter_context(contextlib.closing(self._opener.open(file)))
            names = {
                name
                for name in topics
                if (found := reader.topics.get(name)) and found.is_decoded_as(self.topics[name])
            }
            order = self._files[file].order
            for message in reader.messages(names, order=order, passes_damage=True):
                packed = self._compressed or message.data[:4] == ZSTD
                yield self._decompress(message) if packed else message

    def _decompress(self, message: McapMessage) -> McapMessage:
        if message.fault:
            return message
        try:
            size = zstandard.frame_content_size(message.data)
            if not 0 <= size <= max(_ANY, min(_LONGEST, _MOST_RATIO * len(message.data))):
                text = f"a message of {size} bytes, stored in {len(message.data)} bytes"
                raise zstandard.ZstdError(text)
            data = zstandard.ZstdDecompressor().decompress(message.data)
        except zstandard.ZstdError as error:
            return replace(message, data=b"", fault=f"cannot be decompressed: {error}")
        return replace(message, data=data)

    def close(self) -> None:
        """Close all open files."""
        for reader in self._scanned.values():
            reader.close()
        self._scanned.clear()
        self._opener.close()


@dataclass(slots=True)
class _Look:
    """Log times of a file, before the steps of its clock are known.

    Attributes:
        number: number of the file in the recording.
        tail: reason of an early end; None if the file is whole.
        end_ns: its latest corrected log time.
        channels: topics by channel.
        block_starts_ns: earliest log time by block.
        latest: block, offset and log time of the last message, by channel.
        first_ns, last_ns: the first and last log time in the order of the file.
    """

    file: Path
    number: int
    tail: str | None = None
    end_ns: int = 0
    has_messages: bool = False
    channels: dict[int, str] = field(default_factory=dict)
    block_starts_ns: list[int] = field(default_factory=list)
    latest: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    first_ns: int = 0
    last_ns: int = 0

    @property
    def _origin(self) -> int:
        return self.number << _FILE_BITS

    def take(self, reader: MessageReader, clock: RecordingClock, before: _Look | None) -> bool:
        """Read the log times; return whether there are messages at time 0."""
        names = _name_channels(self.channels)
        begun, untimed = False, False
        for block, channels in reader.log_times():
            found: dict[str, tuple[Times, Times]] = {}
            for channel, (offsets, times) in channels.items():
                if channel not in names:
                    continue
                if not times.all():
                    untimed = True
                    offsets, times = offsets[times > 0], times[times > 0]
                if len(times):
                    found[names[channel]] = pack_place(block, 0) + offsets, times
                    self.latest[channel] = block, int(offsets[-1]), int(times[-1])
            firsts = (int(times.min()) for _, times in found.values())
            self.block_starts_ns[block] = min(firsts, default=0)
            if not found:
                continue
            if not begun:
                begun = True
                _, self.first_ns = min((int(p[0]), int(times[0])) for p, times in found.values())
                if before is None or not before.leads_to(self):
                    clock.restart(self._origin)
            clock.take(found, self._origin)
            _, self.last_ns = max((int(p[-1]), int(times[-1])) for p, times in found.values())
        return untimed

    def leads_to(self, other: _Look) -> bool:
        """Return whether another file continues this one, by its first log time and its topics."""
        common = set(self.channels.values()) & set(other.channels.values())
        back_ns = min(LATE_NS, abs(self.last_ns - self.first_ns) // 2)
        return bool(common) and other.first_ns >= self.last_ns - back_ns

    def order(self, clock: RecordingClock) -> LogOrder:
        """Return the corrections of this file's log times."""
        shifts = {}
        for channel, name in _name_channels(self.channels).items():
            positions, values = clock.shifts(name)
            places = [max(0, position - self._origin) for position in positions]
            if any(values):
                shifts[channel] = places, values
        order = LogOrder(self.block_starts_ns, shifts)
        if not shifts:
            return order
        starts = [
            start and start + min(order.shift_ns(channel, block, 0) for channel in self.latest)
            for block, start in enumerate(self.block_starts_ns)
        ]
        return LogOrder(starts, shifts)


def _name_channels(channels: Mapping[int, str]) -> dict[int, str]:
    """Name each channel by its topic; a topic may have a channel for each of its publishers."""
    names: dict[int, str] = {}
    for channel, topic in sorted(channels.items()):
        count = sum(channels[other] == topic for other in names)
        names[channel] = f"{topic}#{count}" if count else topic
    return names


def _read_metadata(folder: Path) -> _Metadata:
    """Return the files of a bag.

    Raises:
        FormatError: as for `Bag`.
    """
    path = folder / METADATA
    if not path.exists():
        found = [each for each in folder.iterdir() if each.name.endswith(SUFFIXES)]
        if not found:
            raise FormatError(
                f"{folder}: has neither {METADATA} nor files of MCAP or SQLite: not a ROS 2 bag"
            )
        stems = {_PART_NUMBER.sub("", each.name.partition(".")[0]) for each in found}
        return _Metadata(tuple(sorted(found, key=_make_sort_key)), numbered=len(stems) == 1)
    try:
        values = yaml.safe_load(path.read_bytes())[_INFORMATION]
        storage = values["storage_identifier"]
        names = list(values["relative_file_paths"])
        if not all(isinstance(name, str) for name in names):
            raise TypeError("names of files are texts")
        mode = str(values.get("compression_mode") or "").lower()
        kind = str(values.get("compression_format") or "")
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FormatError(f"{path}: is not the metadata of a ROS 2 bag") from None
    # Early versions of rosbag2 wrote the bag's folder before the name.
    files = [folder / Path(name).name for name in names]
    # `ros2 bag reindex` of Humble leaves the name empty.
    known = any(read_magic(file).startswith(MAGICS) for file in files)
    if storage not in _STORAGES and (storage or not known):
        raise FormatError(
            f"{path}: the bag's storage is {storage!r:.40}, not 'mcap' or 'sqlite3': `ros2 bag "
            "convert` makes an MCAP bag of it"
        )
    if mode in ("file", "message") and kind != "zstd":
        raise FormatError(f"{path}: {mode}s are compressed as {kind!r:.40}, which is not known")
    absent = [file for file in files if not file.is_file()]
    if absent and len(absent) == len(files):
        raise FormatError(f"{path}: lists {absent[0].name!r:.100}, which is not in the folder")
    if not files:
        raise FormatError(f"{path}: lists no file")
    return _Metadata(tuple(files), mode == "message", True, *_read_topics(values))


def _read_topics(values: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, str]]:
    """Return by topic the number of messages and the type's hash, where they are as in rosbag2."""
    counts: dict[str, int] = {}
    hashes: dict[str, str] = {}
    for entry in values.get("topics_with_message_count") or ():
        with contextlib.suppress(TypeError, KeyError, AttributeError):
            about = entry["topic_metadata"]
            name, type_hash = str(about["name"]), about.get("type_description_hash")
            if isinstance(type_hash, str) and type_hash.strip():
                hashes[name] = type_hash.strip()
            if isinstance(count := entry["message_count"], int):
                counts[name] = count
    return counts, hashes


def _make_sort_key(path: Path) -> list[Any]:
    """Return the sort key of a file by name, which puts ``bag_2`` before ``bag_10``."""
    parts = re.split(r"(\d+)", path.name)
    return [int(part) if part.isdecimal() else part for part in parts]
