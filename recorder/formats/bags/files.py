"""Files of a recording: one interface of their readers, chosen by what a file begins with.

::

    with contextlib.closing(MessageFiles()) as files:
        reader = files.open(Path("drive_0.db3.zstd"))
        reader.topics, reader.damage
        for message in reader.messages({"/imu"}, order): ...

A further format is one more reader in `_read_file`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import zstandard

from recorder.common.errors import FormatError, need_extra
from recorder.common.files import Closeable
from recorder.formats.bags.clock import Times
from recorder.formats.bags.sqlite import MAGIC as SQLITE
from recorder.formats.bags.sqlite import SqliteReader
from recorder.formats.mcap import LogOrder, McapMessage, McapTopic

ZSTD: Final = b"\x28\xb5\x2f\xfd"
MAGICS: Final = (b"\x89MCAP0\r\n", SQLITE, ZSTD)
"""First bytes of files that can be read."""
_READ: Final = 4096  # bytes: what is decompressed from the piece with the damage is lost
SUFFIXES: Final = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd")


class MessageReader(Protocol):
    """A file of messages on topics.

    A file is a sequence of blocks, and a message has an offset in its block, so that corrections of
    log times can name places (`LogOrder`).  A topic may have several channels.

    Attributes:
        damage: reason why something is not read, or was found by a scan; "": all is in order.
        is_cut: whether messages at the end, or some between, cannot be read.
        conflicts: a line for each channel that is left out.
    """

    damage: str
    is_cut: bool
    conflicts: list[str]

    @property
    def profile(self) -> str:
        """Profile of the messages, such as ``ros2``."""

    @property
    def topics(self) -> Mapping[str, McapTopic]:
        """Topics by name."""

    @property
    def channels(self) -> Mapping[int, str]:
        """Topic of each channel, by the channel's number."""

    @property
    def start_ns(self) -> int | None:
        """Earliest log time; None: the file has no message."""

    @property
    def end_ns(self) -> int | None:
        """Latest log time; None: the file has no message."""

    @property
    def block_starts_ns(self) -> Sequence[int]:
        """Earliest log time of each block, as far as the file has it."""

    def log_times(self) -> Iterator[tuple[int, dict[int, tuple[Times, Times]]]]:
        """Yield block, and by channel offsets and log times, in the order of the file."""

    def messages(
        self, topics: Collection[str], *, order: LogOrder, passes_damage: bool = False
    ) -> Iterator[McapMessage]:
        """Yield messages in order of their corrected log times.

        Raises:
            FormatError: a message cannot be read and `passes_damage` is False.
        """

    def close(self) -> None:
        """Release all resources."""


class MessageFiles(Closeable):
    """Opener of files; copies of compressed ones last until `close`."""

    def __init__(self) -> None:
        self._copies: dict[Path, tuple[Path, str]] = {}  # with why the copy is not whole
        self._folders = contextlib.ExitStack()

    def open(self, path: Path) -> MessageReader:
        """Open a file by what it begins with.

        Raises:
            FormatError: the file has an unknown format, or is damaged; names the file.
            OSError: the file cannot be read.
        """
        if not read_magic(path).startswith(ZSTD):
            return _read_file(path)
        copy, fault = self._decompress(path)
        try:
            reader = _read_file(copy)
        except FormatError as error:
            text = str(error).replace(str(copy), str(path))
            raise FormatError(f"{text} ({fault})" if fault else text) from None
        reader.damage = reader.damage.replace(str(copy), str(path))
        if fault:
            reader.is_cut = True
            reader.damage = f"{path}: {fault}"
        return reader

    def _decompress(self, path: Path) -> tuple[Path, str]:
        """Return the decompressed copy of a file, and why it is not whole, if it is not."""
        if (found := self._copies.get(path)) is not None:
            return found
        folder = self._folders.enter_context(tempfile.TemporaryDirectory())
        copy, fault = Path(folder) / path.stem, ""
        with path.open("rb") as source, copy.open("wb") as target:
            rest, frame = b"", None
            try:
                while data := rest or source.read(_READ):
                    frame = frame or zstandard.ZstdDecompressor().decompressobj()
                    target.write(frame.decompress(data))
                    rest, frame = frame.unused_data, None if frame.eof else frame
                if frame is not None:
                    fault = "its compressed data are not whole: read as far as they go"
            except zstandard.ZstdError as error:
                fault = f"cannot be decompressed after {target.tell()} bytes: {error}"
        self._copies[path] = copy, fault
        return copy, fault

    def close(self) -> None:
        self._copies.clear()
        self._folders.close()


def _read_file(path: Path) -> MessageReader:
    if read_magic(path).startswith(SQLITE):
        return SqliteReader(path)
    if path.suffix == ".db3":
        raise FormatError(f"{path}: byte 0: not an SQLite file")
    try:
        from recorder.formats.mcap.reader import McapReader
    except ModuleNotFoundError as error:
        if error.name != "mcap":
            raise
        text = f"{path}: reading MCAP {need_extra('archives')}: no {error.name}"
        raise FormatError(text) from None
    return McapReader(path)


def read_magic(path: Path) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(max(map(len, MAGICS)))
    except OSError:
        return b""
