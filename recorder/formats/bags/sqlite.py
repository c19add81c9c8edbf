"""Reader of a ROS 2 bag's file of SQLite (``.db3``), the default storage up to Humble.

A file has the tables ``topics`` (id, name, type, serialization_format, offered_qos_profiles, ...)
and ``messages`` (id, topic_id, timestamp, data), and since Iron ``message_definitions``.  Ids count
up in the order in which messages were written.  For `Bag` the reader looks like that of MCAP: a
block is a range of ids, and a message's offset in it is its id less the first of the block.

A file whose recorder was killed may have a journal or a log beside it, which SQLite applies, to a
copy where the file's folder does not permit it.  In a damaged file each id is tried by itself.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from recorder.common.errors import FormatError
from recorder.common.files import Closeable
from recorder.common.text_format import clean
from recorder.formats.bags.clock import Times
from recorder.formats.mcap import TYPE_HASH, LogOrder, McapMessage, McapTopic, merge_blocks

MAGIC: Final = b"SQLite format 3\0"
_BLOCK: Final = 256  # messages
_HEAD: Final = 100  # bytes of a database's header
_MOST_IDS: Final = 1 << 40
_LINE: Final = 300
_DAMAGE: Final = (sqlite3.Error, UnicodeDecodeError)  # the latter: of the text of an error
_FIRST_ID: Final = 1  # of each file
_BESIDE: Final = ("-wal", "-journal")  # SQLite's, of what the database does not hold yet


class SqliteReader(Closeable):
    """A ``.db3`` file, opened for reading; attributes as those of `McapReader`.

    Raises:
        FormatError: the file is no bag of SQLite, or its tables cannot be read.
    """

    profile = "ros2"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self.is_cut = False
        self.conflicts: list[str] = []
        self.start_ns: int | None = None
        self.end_ns: int | None = None
        self._resources = contextlib.ExitStack()
        self._database = self._resources.enter_context(contextlib.closing(self._open(path)))
        self._unread: set[int] = set()
        try:
            self._first, self._last = self._find_ids()
            self.channels, self.topics = self._read_topics()
            self._find_interval()
        except _DAMAGE as error:
            self.close()
            raise FormatError(f"{path}: not a ROS 2 bag of SQLite: {_line(error)}") from None

    def _find_ids(self) -> tuple[int, int]:
        """Return the first id, and the last one of those that can be read; last < first: none."""
        first, last = self._find_end("min"), self._find_end("max")
        if first is None and not self.is_cut:
            return 0, -1
        first = _FIRST_ID if first is None else first
        if last is None:
            last, step = first, _MOST_IDS
            while step:  # messages before the last one may be damaged, too
                last += step if self._row(last + step) is not None else 0
                step //= 2
            self._unread.clear()  # ids that were never given
        if last - first > (size := self.path.stat().st_size):
            raise FormatError(f"{self.path}: messages {first} to {last} in {size} bytes")
        return first, last

    def _find_end(self, which: str) -> int | None:
        """Return the ``min`` or ``max`` of the ids; None: there is none, or it is damaged."""
        problem: Exception | None = None
        for index in ("", " INDEXED BY timestamp_idx"):
            try:
                query = f"SELECT {which}(id) FROM messages{index}"
                (found,) = self._database.execute(query).fetchone()
            except _DAMAGE as error:
                problem = problem or error
            else:
                break
        else:
            found = None
        if problem is not None:
            self.is_cut = True
            self.damage = self.damage or f"{self.path}: {problem}: read as far as it goes"
        return found if isinstance(found, int) else None

    def _row(self, message_id: int) -> tuple[int, int, int] | None:
        """Return id, topic's id and time of a message; None: there is none that can be read."""
        rows = self._select("id = ?", [message_id])
        if rows is None:
            self._unread.add(message_id)
        return rows[0] if rows else None

    def _rows(self, block: int) -> list[tuple[int, int, int]]:
        """Return id, topic's id and time of the messages of a block that can be read, by id."""
        ids = self._ids(block)
        if (rows := self._select("id BETWEEN ? AND ? ORDER BY id", [ids[0], ids[-1]])) is None:
            return [row for each in ids if (row := self._row(each)) is not None]
        return rows

    def _select(self, which: str, values: Sequence[int]) -> list[tuple[int, int, int]] | None:
        """Return id, topic's id and time of messages; None: some of them cannot be read.

        A damaged row may have values of other types.
        """
        query = f"SELECT id, topic_id, timestamp FROM messages WHERE {which}"
        try:
            rows = self._database.execute(query, values).fetchall()
        except _DAMAGE as error:
            self.damage = self.damage or f"{self.path}: {_line(error)}"
            return None
        if all(isinstance(each, int) and each >= 0 for row in rows for each in row):
            return rows
        self.damage = self.damage or f"{self.path}: values of other types"
        return None

    def _ids(self, block: int) -> range:
        start = self._first + block * _BLOCK
        return range(start, min(start + _BLOCK, self._last + 1))

    @property
    def _blocks(self) -> range:
        return range(-(-(self._last + 1 - self._first) // _BLOCK))

    def _read_topics(self) -> tuple[dict[int, str], dict[str, McapTopic]]:
        """Return the topics' names by id, and the topics by name."""
        columns = {row[1] for row in self._database.execute("PRAGMA table_info(topics)")}
        qos, hashed = (
            name if name in columns else "''"
            for name in ("offered_qos_profiles", "type_description_hash")
        )
        query = f"SELECT id, name, type, serialization_format, {qos}, {hashed} FROM topics "
        query += "ORDER BY id"
        counts = self._count()
        definitions = self._read_definitions()
        names: dict[int, str] = {}
        topics: dict[str, McapTopic] = {}
        rows = self._database.execute(query)
        for number, name, type_name, encoding, profiles, type_hash in rows:
            if not (isinstance(name, str) and isinstance(type_name, str)):
                self.conflicts.append(f"topic {number}: {counts.get(number, 0)} messages: no name")
                continue
            schema = definitions.get(type_name, ("", b""))
            known = topics.get(name)
            count = counts.get(number, 0) + (known.count if known else 0)
            metadata = {"offered_qos_profiles": str(profiles or "")}
            if type_hash:
                metadata[TYPE_HASH] = str(type_hash)
            topic = McapTopic(name, type_name, *schema, str(encoding or "cdr"), count, metadata)
            if known is not None and not topic.is_decoded_as(known):
                self.conflicts.append(
                    f"{name}: {counts.get(number, 0)} messages of {type_name!r} beside those of "
                    f"{known.schema_name!r}: left out"
                )
                continue
            names[number], topics[name] = name, topic
        return names, topics

    def _count(self) -> dict[int, int]:
        """Return the number of messages by topic's id."""
        counts: dict[int, int] = {}
        for block in self._blocks:
            for _, topic_id, _ in self._rows(block):
                counts[topic_id] = counts.get(topic_id, 0) + 1
        return counts

    def _read_definitions(self) -> dict[str, tuple[str, bytes]]:
        """Return encoding and text of the definitions by type; before Iron there are none."""
        query = "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
        try:
            rows = self._database.execute(query).fetchall()
        except _DAMAGE:
            return {}
        return {name: (str(encoding), str(text).encode()) for name, encoding, text in rows if text}

    def _find_interval(self) -> None:
        if self._unread:
            self.is_cut = True
            self.damage = f"{self.path}: {len(self._unread)} messages cannot be read"
        for _, channels in self.log_times():
            for _, times in channels.values():
                low, high = int(times.min()), int(times.max())
                self.start_ns = low if self.start_ns is None else min(self.start_ns, low)
                self.end_ns = high if self.end_ns is None else max(self.end_ns, high)

    @property
    def block_starts_ns(self) -> Sequence[int]:
        """Zeros: earliest times are found by `log_times`."""
        return [0] * len(self._blocks)

    def log_times(self) -> Iterator[tuple[int, dict[int, tuple[Times, Times]]]]:
        """Yield log times in the order of the file, as `McapReader.log_times`."""
        for block in self._blocks:
            rows = np.array(self._rows(block), np.int64).reshape(-1, 3)
            found = {}
            for topic_id in self.channels:
                of_topic = rows[rows[:, 1] == topic_id]
                if len(of_topic):
                    found[topic_id] = of_topic[:, 0] - self._ids(block)[0], of_topic[:, 2]
            yield block, found

    def messages(
        self,
        topics: Collection[str],
        *,
        order: LogOrder,
        passes_damage: bool = False,
    ) -> Iterator[McapMessage]:
        """Yield messages in order of their log times, as `McapReader.messages`.

        Raises:
            FormatError: a message cannot be read and `passes_damage` is False.
        """
        wanted = {number: name for number, name in self.channels.items() if name in topics}

        def read(block: int) -> tuple[list[tuple[int, tuple[int, int, int, int]]], int]:
            found: list[tuple[int, tuple[int, int, int, int]]] = []
            before_ns, first = order.starts_ns[block], self._ids(block)[0]
            for message_id, topic_id, log_ns in self._rows(block):
                shift_ns = order.shift_ns(topic_id, block, message_id - first)
                before_ns = log_ns + shift_ns if log_ns else before_ns
                if topic_id in wanted:
                    found.append((before_ns, (message_id, topic_id, log_ns, shift_ns)))
            found.sort(key=itemgetter(0))
            return found, 0

        for message_id, topic_id, log_ns, shift_ns in merge_blocks(
            self._blocks, order.starts_ns, read
        ):
            message = self._message(message_id, wanted[topic_id], log_ns, shift_ns)
            if message.fault and not passes_damage:
                raise FormatError(f"{self.path}: {message.fault}")
            yield message

    def _message(self, message_id: int, topic: str, log_ns: int, shift_ns: int) -> McapMessage:
        data: Any = b""
        fault = ""
        try:
            query = "SELECT data FROM messages WHERE id = ?"
            (data,) = self._database.execute(query, [message_id]).fetchone() or (None,)
            if not isinstance(data, bytes):
                raise sqlite3.DataError("has no data")
        except _DAMAGE as error:
            data, fault = b"", f"message {message_id}: {_line(error)}"
        return McapMessage(topic, 0, log_ns, log_ns, data, shift_ns, fault)

    def _open(self, path: Path) -> sqlite3.Connection:
        beside = [f for end in _BESIDE if (f := Path(f"{path}{end}")).exists() and f.stat().st_size]
        try:
            # Without a log to apply, a file is read even where no other can be made beside it.
            return _connect(path, "mode=ro", *([] if beside else ["mode=ro&immutable=1"]))
        except FormatError:
            folder = self._resources.enter_context(tempfile.TemporaryDirectory())
            copy = Path(folder) / path.name
            self.is_cut = _copy_truncated(path, copy)
            if not self.is_cut and not beside:
                self._resources.close()
                raise
        if self.is_cut:
            self.damage = f"{path}: shorter than its header says: read as far as it goes"
        else:
            shutil.copy(path, copy)
        for each in beside:
            shutil.copy(each, copy.parent)
        try:
            return _connect(copy, "mode=rw")
        except FormatError as error:
            self._resources.close()
            raise FormatError(str(error).replace(str(copy), str(path))) from None

    def close(self) -> None:
        self._resources.close()


def _line(error: Any) -> str:
    """Return an error's text, which may quote the database's own, as a line."""
    return clean(str(error))[:_LINE]


def _connect(path: Path, *modes: str) -> sqlite3.Connection:
    """Open a database in the first mode in which its topics can be read."""
    problem: Any = None
    for mode in modes:
        uri = f"file:{quote(str(path.absolute()))}?{mode}"
        database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        try:
            database.execute("SELECT count(*) FROM topics").fetchone()
        except _DAMAGE as error:
            problem = problem or error
            database.close()
        else:
            return database
    raise FormatError(f"{path}: not a ROS 2 bag of SQLite: {_line(problem)}")


def _copy_truncated(path: Path, copy: Path) -> bool:
    """Copy a file that is shorter than its header says, with a header that says its length.

    SQLite refuses such a file, although its pages are in order.  Returns whether it is one.
    """
    with path.open("rb") as source:
        head = source.read(_HEAD)
        page = int.from_bytes(head[16:18], "big")
        page = 1 << 16 if page == 1 else page
        pages = path.stat().st_size // page if page else 0
        if len(head) < _HEAD or not 0 < pages < int.from_bytes(head[28:32], "big"):
            return False
        with copy.open("wb") as target:
            target.write(head[:28] + pages.to_bytes(4, "big") + head[32:])
            shutil.copyfileobj(source, target)
    return True
