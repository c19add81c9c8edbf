"""A recording of messages: one MCAP file, or a ROS 2 bag, which is a folder of them.

    with Bag(Path("drive_2026_05_01")) as bag:       # or Path("drive.mcap")
        for message in bag.messages({"/camera/image"}):
            ...

A bag's folder has ``metadata.yaml`` (rosbag2, ``rosbag2_bagfile_information``), which lists its
files.  A recorder that was killed has not written it; then all MCAP files of the folder are the
bag, in the order of their numbers.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
import zstandard

from recorder.contract.closing import Closing
from recorder.contract.errors import FormatError

if TYPE_CHECKING:
    from recorder.formats.mcap.reader import McapMessage, McapReader, McapTopic

METADATA: Final = "metadata.yaml"
_INFORMATION: Final = "rosbag2_bagfile_information"
LATEST_NS: Final = (1 << 63) - 1
"""The last time that the recorder knows, epoch ns: int64; MCAP has uint64."""
_MAGIC: Final = b"\x89MCAP0\r\n"
_LONGEST: Final = 1 << 30  # bytes of a message that was compressed


@dataclass(frozen=True, slots=True)
class _Metadata:
    """What matters of ``metadata.yaml``."""

    files: tuple[Path, ...]
    compressed: bool = False  # each message by itself, zstd


class Bag(Closing):
    """Reads the files of a recording one after another; see the module.

    A file is open while its messages are read, and a file without an index until `close`.

    Args:
        path: an MCAP file, or the folder of a ROS 2 bag.

    Attributes:
        path: as given.
        topics: of all files, by name; `count` is that of all files.
        start_ns, end_ns: earliest and latest log time; None: there is no message.
        profile: of the files' headers, such as ``ros2``.
        tail: why the recording ends early; None if it is whole.
        conflicts: a line for each channel of a topic that is of another type, and is not read.

    Raises:
        FormatError: the file is not MCAP or is damaged, the folder is not a bag of MCAP files, or
            the package that reads MCAP is missing.
        OSError: a file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        metadata = _read_metadata(path) if path.is_dir() else _Metadata((path,))
        self._compressed = metadata.compressed
        self.topics: dict[str, McapTopic] = {}
        self.tail: str | None = None
        self.profile = ""
        self.conflicts: list[str] = []
        self._scanned: dict[Path, McapReader] = {}
        self._intervals: dict[Path, tuple[int, int]] = {}
        try:
            for file in metadata.files:
                self._look(file)
        except BaseException:
            self.close()
            raise
        self._files = sorted(self._intervals, key=lambda file: self._intervals[file])
        starts, ends = zip(*self._intervals.values(), strict=True) if self._files else ((), ())
        self.start_ns: int | None = min(starts, default=None)
        self.end_ns: int | None = max(ends, default=None)

    def _look(self, file: Path) -> None:
        """Take a file's topics and times."""
        reader = _open(file)
        try:
            self._take_topics(reader.topics)
            self.conflicts += reader.conflicts
            self.profile = self.profile or reader.profile
            if reader.is_cut:
                text = reader.damage.removeprefix(f"{file}: ")
                self.tail = text if file == self.path else f"{file.name}: {text}"
            if reader.start_ns is not None and reader.end_ns is not None:
                if reader.end_ns > LATEST_NS:
                    text = "later than the recorder's last time, in the year 2262"
                    raise FormatError(f"{file}: a log time of {reader.end_ns} ns: {text}")
                self._intervals[file] = reader.start_ns, reader.end_ns
        finally:
            if reader.damage:  # finding its messages again would take another scan
                self._scanned[file] = reader
            else:
                reader.close()

    @property
    def duration_s(self) -> float:
        """From the earliest log time to the latest, in s."""
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
        """Yield the messages of some topics in the order of their log times, file after file.

        Raises:
            FormatError: a file is damaged; the messages before the damage have been yielded.
        """
        for file in self._files:
            with contextlib.ExitStack() as stack:
                reader = self._scanned.get(file) or stack.enter_context(_open(file))
                names = {
                    name
                    for name in topics
                    if (found := reader.topics.get(name)) and found.is_decoded_as(self.topics[name])
                }
                for message in reader.messages(names):
                    yield self._uncompressed(message, file) if self._compressed else message

    def _uncompressed(self, message: McapMessage, file: Path) -> McapMessage:
        try:
            size = zstandard.frame_content_size(message.data)
            if not 0 <= size <= _LONGEST:
                raise zstandard.ZstdError(f"a size of {size} bytes")
            data = zstandard.ZstdDecompressor().decompress(message.data)
        except zstandard.ZstdError as error:
            where = f"{file}: {message.topic}, {message.log_ns} ns"
            raise FormatError(f"{where}: the message cannot be decompressed: {error}") from None
        return replace(message, data=data)

    def close(self) -> None:
        """Close the files that are open."""
        for reader in self._scanned.values():
            reader.close()
        self._scanned.clear()


def _open(file: Path) -> McapReader:
    try:
        from recorder.formats.mcap.reader import McapReader
    except ModuleNotFoundError as error:
        if error.name != "mcap":
            raise
        text = "reading MCAP needs the package mcap: pip install 'vehicle-recorder[archives]'"
        raise FormatError(f"{file}: {text}") from None
    return McapReader(file)


def _read_metadata(folder: Path) -> _Metadata:
    """Return the files of a bag.

    Raises:
        FormatError: as `Bag`.
    """
    path = folder / METADATA
    if not path.exists():
        files = sorted(folder.glob("*.mcap"), key=_numbered)
        if not files:
            raise FormatError(f"{folder}: has neither {METADATA} nor MCAP files: not a ROS 2 bag")
        return _Metadata(tuple(files))
    try:
        values = yaml.safe_load(path.read_bytes())[_INFORMATION]
        storage = values["storage_identifier"]
        names = [str(name) for name in values["relative_file_paths"]]
        mode = str(values.get("compression_mode") or "").lower()
        kind = str(values.get("compression_format") or "")
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FormatError(f"{path}: is not the metadata of a ROS 2 bag") from None
    # Early versions of rosbag2 wrote the bag's folder before the name.
    files = [folder / Path(name).name for name in names]
    # `ros2 bag reindex` of Humble leaves the name empty.
    if storage != "mcap" and (storage or not all(map(_is_mcap, files))):
        raise FormatError(
            f"{path}: the bag's storage is {storage!r:.40}, not 'mcap': `ros2 bag convert` makes "
            "an MCAP bag of it"
        )
    if mode == "file" and any(not name.endswith(".mcap") for name in names):
        raise FormatError(
            f"{path}: the bag's files are compressed as a whole: decompress them (`zstd -d`), and "
            "remove the metadata"
        )
    if mode == "message" and kind != "zstd":
        raise FormatError(f"{path}: messages are compressed as {kind!r:.40}, which is not known")
    if absent := [file for file in files if not file.is_file()]:
        raise FormatError(f"{path}: lists {absent[0].name!r:.100}, which is not in the folder")
    if not files:
        raise FormatError(f"{path}: lists no file")
    return _Metadata(tuple(files), compressed=mode == "message")


def _is_mcap(path: Path) -> bool:
    """Whether a file begins as MCAP files do."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _numbered(path: Path) -> list[Any]:
    """Sort ``bag_2`` before ``bag_10``."""
    parts = re.split(r"(\d+)", path.name)
    return [int(part) if part.isdecimal() else part for part in parts]
