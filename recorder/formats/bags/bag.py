"""A recording of messages: one MCAP file, or a ROS 2 bag, which is a folder of them.

    bag = Bag(Path("drive_2026_05_01"))              # or Path("drive.mcap")
    for message in bag.messages({"/camera/image"}):
        ...

A bag's folder has ``metadata.yaml`` (rosbag2, ``rosbag2_bagfile_information``), which lists its
files.  A recorder that was killed has not written it; then all MCAP files of the folder are the
bag, in the order of their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
import zstandard

from recorder.contract.errors import FormatError

if TYPE_CHECKING:
    from recorder.formats.mcap.reader import McapMessage, McapReader, McapTopic

METADATA: Final = "metadata.yaml"
_INFORMATION: Final = "rosbag2_bagfile_information"
_LONGEST: Final = 1 << 30  # bytes of a message that was compressed


@dataclass(frozen=True, slots=True)
class _Metadata:
    """What matters of ``metadata.yaml``."""

    files: tuple[Path, ...]
    compressed: bool = False  # each message by itself, zstd


class Bag:
    """Reads the files of a recording one after another; see the module.

    Only `messages` keeps a file open, until its iteration ends or is closed.

    Args:
        path: an MCAP file, or the folder of a ROS 2 bag.

    Attributes:
        path: as given.
        topics: of all files, by name; `count` is that of all files.
        start_ns, end_ns: earliest and latest log time; None: there is no message.
        profile: of the first file's header, such as ``ros2``.
        tail: why the recording ends early; None if it is whole.

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
        begun: list[tuple[int, Path]] = []
        ends: list[int] = []
        for number, file in enumerate(metadata.files):
            with _open(file) as reader:
                self._take_topics(reader.topics)
                self.profile = self.profile if number else reader.profile
                if reader.is_cut:
                    self.tail = reader.damage.removeprefix(f"{file}: ")
                    if file != path:
                        self.tail = f"{file.name}: {self.tail}"
                if reader.start_ns is not None and reader.end_ns is not None:
                    begun.append((reader.start_ns, file))
                    ends.append(reader.end_ns)
        self._files = [file for _, file in sorted(begun, key=lambda each: each[0])]
        self.start_ns = min((start for start, _ in begun), default=None)
        self.end_ns = max(ends, default=None)

    @property
    def duration_s(self) -> float:
        """From the earliest log time to the latest, in s."""
        return ((self.end_ns or 0) - (self.start_ns or 0)) / 1e9

    def _take_topics(self, topics: Mapping[str, McapTopic]) -> None:
        for name, topic in topics.items():
            known = self.topics.get(name)
            if known is not None:
                topic = replace(known, count=known.count + topic.count)
            self.topics[name] = topic

    def messages(self, topics: Collection[str]) -> Generator[McapMessage]:
        """Yield the messages of some topics in the order of their log times, file after file.

        Raises:
            FormatError: a file is damaged; the messages before the damage have been yielded.
        """
        for file in self._files:
            with _open(file) as reader:
                for message in reader.messages(topics):
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
    if storage != "mcap":
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
    # Early versions of rosbag2 wrote the bag's folder before the name.
    files = [folder / Path(name).name for name in names]
    if absent := [file for file in files if not file.is_file()]:
        raise FormatError(f"{path}: lists {absent[0].name!r:.100}, which is not in the folder")
    if not files:
        raise FormatError(f"{path}: lists no file")
    return _Metadata(tuple(files), compressed=mode == "message")


def _numbered(path: Path) -> list[Any]:
    """Sort ``bag_2`` before ``bag_10``."""
    parts = re.split(r"(\d+)", path.name)
    return [int(part) if part.isdecimal() else part for part in parts]
