"""A disk that writes down what is done to it, and makes crash states of that.

`SimulatedDisk` takes the place of `recorder.common.files.PosixDisk`: it does everything in a real
folder, so that code which reads back what it wrote finds it, and keeps a list of `Op`.  `Model`
(`tests.crash.model`) plays such a list and knows at every point which bytes and which names a
power cut cannot take away any more, and which it can::

    base = Tree.of(folder)
    disk = SimulatedDisk(folder, base=base)
    ...                                     # the writer at work
    model = Model(base)
    for op in disk.ops:
        model.power_cut(random)             # a state: what may be found after a cut right here
        model.visible()                      # a state: what a SIGKILL leaves, too
        model.apply(op)

Assumed of the disk, as databases do: sectors are written whole or not at all where they were
synced before; fdatasync makes a file's bytes and length durable, but not its name; fsync of a
folder makes the names in it durable; a rename is one step.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recorder.common.files import AppendFile, Buffer, Scratch, buffer_size


class KilledError(BaseException):
    """The process that uses the disk was killed (SIGKILL): no handler may mend anything."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation, as the kernel sees it.

    Attributes:
        kind: ``write`` (node, at, data), ``cut`` (node, at), ``sync`` (node), ``folder`` (node:
            sync of that folder), ``link``, ``mkdir`` and ``remove`` (parent, name, node), ``move``
            (source, old, parent, name, node).
        node: number of the file or folder.
        at: offset, or length to cut to.
        parent, name: folder and name under which the node is found afterwards.
        source, old: folder and name under which it was found before.
    """

    kind: str
    node: int
    at: int = 0
    data: bytes = b""
    parent: int = -1
    name: str = ""
    source: int = -1
    old: str = ""


@dataclass(slots=True)
class Tree:
    """Files and folders by number; number 0 is the outermost folder.

    Attributes:
        folders: names in each folder.
        files: bytes of each file.
    """

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    files: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, skip: frozenset[str] = frozenset()) -> Tree:
        """What lies in a real folder, without files of the names in `skip`."""
        tree = cls()
        tree._take(str(folder), 0, skip)
        return tree

    def _take(self, folder: str, number: int, skip: frozenset[str]) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in skip:
                    continue
                child = len(self.folders) + len(self.files)
                self.folders[number][entry.name] = child
                if entry.is_dir():
                    self.folders[child] = {}
                    self._take(entry.path, child, skip)
                else:
                    with Path(entry.path).open("rb", buffering=0) as file:
                        self.files[child] = file.read()

    def below(self, path: str) -> Tree:
        """The tree from one of its folders on."""
        number = self.find(path)
        assert number in self.folders, path
        folders = self.folders | {0: self.folders[number]}
        return Tree(folders, self.files)

    def walk(self, number: int = 0, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        """Every path from the outermost folder with its bytes; None for folders."""
        for name, child in sorted(self.folders[number].items()):
            path = f"{prefix}{name}"
            if child in self.folders:
                yield path, None
                yield from self.walk(child, path + "/")
            else:
                yield path, self.files.get(child, b"")

    def find(self, path: str) -> int | None:
        """The number at a path; None where there is nothing."""
        number = 0
        for name in path.split("/"):
            if number not in self.folders or name not in self.folders[number]:
                return None
            number = self.folders[number][name]
        return number

    def numbers(self, number: int = 0, prefix: str = "") -> dict[str, int]:
        """The number of each path."""
        found = {}
        for name, child in self.folders[number].items():
            found[prefix + name] = child
            if child in self.folders:
                found |= self.numbers(child, f"{prefix}{name}/")
        return found

    def digest(self) -> bytes:
        """Names the tree by all that can be seen of it."""
        digest = hashlib.blake2b(digest_size=12)
        for path, data in self.walk():
            digest.update(f"{path}\0{-1 if data is None else len(data)}\0".encode())
            digest.update(data or b"")
        return digest.digest()

    def write(self, folder: Path) -> None:
        """Make it real in a new folder."""
        folder.mkdir()
        for path, data in self.walk():
            if data is None:
                (folder / path).mkdir()
            else:
                with (folder / path).open("wb", buffering=0) as file:
                    file.write(data)


class SimulatedDisk:
    """See the module's text; implements `recorder.common.files.Disk`.

    Args:
        root: a real folder.
        gather_bytes: pending bytes at which a file writes without being asked.
        base: what lies in `root`, where a `Model` is to know it by the same numbers.

    Attributes:
        ops: all that was done.
        kill_at: number of the operation that is not done any more, `KilledError` instead.
        before_sync: called before a file is synced; a test may let time pass there.
    """

    def __init__(self, root: Path, gather_bytes: int = 256 * 1024, base: Tree | None = None):
        self.ops: list[Op] = []
        self.kill_at: int | None = None
        self.before_sync: Callable[[], None] = lambda: None
        self.gather_bytes = gather_bytes
        self._root = root
        self._names: dict[str, int] = {"": 0}
        self._next = 1
        self._open: list[_SimulatedFile] = []
        if base is not None:
            self._names |= base.numbers()
            self._next += max([*self._names.values(), *base.folders, *base.files])

    def create(self, path: Path) -> AppendFile:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o640)
        return self._file(path, fd, self._link(path), 0)

    def reopen(self, path: Path, length: int) -> AppendFile:
        size = path.stat().st_size
        if size < length:
            raise ValueError(f"{path}: has {size} bytes where {length} were committed")
        node = self._number(path)
        if size > length:
            self.record(Op("cut", node, length))
            os.truncate(path, length)
        file = self._file(path, os.open(path, os.O_WRONLY | os.O_CLOEXEC), node, length)
        file.dirty = True
        return file

    def write_file(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        if temporary.exists():
            node = self._number(temporary)
            self.record(Op("cut", node, 0))
        else:
            node = self._link(temporary)
        temporary.write_bytes(b"")
        self.record(Op("write", node, 0, data))
        temporary.write_bytes(data)
        self.record(Op("sync", node))
        self._move(temporary, path)
        self.sync_folder(path.parent)

    def make_folder(self, path: Path) -> None:
        if path.exists():
            raise FileExistsError(17, "already exists", str(path))
        self._link(path, "mkdir")
        path.mkdir()
        self.sync_folder(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        if target.exists():
            raise FileExistsError(17, "already exists", str(target))
        self._move(source, target)
        self.sync_folder(target.parent)
        if source.parent != target.parent:
            self.sync_folder(source.parent)

    def remove(self, path: Path) -> None:
        name = self._name(path)
        number, parent = self._number(path), self._number(path.parent)
        self.record(Op("remove", number, parent=parent, name=path.name))
        del self._names[name]
        path.unlink()

    def sync_files(self, files: Sequence[AppendFile]) -> None:
        for file in files:
            file.sync()

    def scratch(self, path: Path) -> Scratch:
        if not path.exists():
            self._link(path)
            path.touch()
        return _SimulatedScratch(self, path, self._number(path))

    def sync_folder(self, path: Path) -> None:
        self.record(Op("folder", self._number(path)))

    def free_bytes(self, path: Path) -> int:
        return 1 << 40

    def kill(self) -> None:
        """The process is gone: open files take nothing any more, what they gathered is lost."""
        self.kill_at = None
        for file in self._open:
            file.forget()
        self._open.clear()

    def record(self, op: Op) -> None:
        """Note an operation that is about to be done."""
        if self.kill_at is not None and len(self.ops) >= self.kill_at:
            raise KilledError
        self.ops.append(op)

    def _file(self, path: Path, fd: int, node: int, length: int) -> _SimulatedFile:
        file = _SimulatedFile(self, path, fd, node, length)
        self._open.append(file)
        return file

    def _name(self, path: Path) -> str:
        name = str(path.relative_to(self._root))
        return "" if name == "." else name

    def _number(self, path: Path) -> int:
        name = self._name(path)
        if name not in self._names:
            self._names[name] = self._next
            self._next += 1
        return self._names[name]

    def _link(self, path: Path, kind: str = "link") -> int:
        node = self._next
        self.record(Op(kind, node, parent=self._number(path.parent), name=path.name))
        self._next += 1
        self._names[self._name(path)] = node
        return node

    def _move(self, source: Path, target: Path) -> None:
        old, new = self._name(source), self._name(target)
        node = self._number(source)
        self.record(
            Op(
                "move",
                node,
                parent=self._number(target.parent),
                name=target.name,
                source=self._number(source.parent),
                old=source.name,
            )
        )
        source.replace(target)
        inside = [n for n in self._names if n == old or n.startswith(old + "/")]
        moved = {new + name[len(old) :]: self._names.pop(name) for name in inside}
        self._names |= moved


class _SimulatedScratch:
    """Implements `recorder.common.files.Scratch`."""

    def __init__(self, disk: SimulatedDisk, path: Path, node: int) -> None:
        self._disk = disk
        self._node = node
        self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def write(self, offset: int, data: bytes) -> None:
        self._disk.record(Op("write", self._node, offset, data))
        os.pwrite(self._fd, data, offset)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _SimulatedFile:
    """Implements `recorder.common.files.AppendFile`."""

    def __init__(self, disk: SimulatedDisk, path: Path, fd: int, node: int, length: int) -> None:
        self.path = path
        self.length = length
        self.dirty = False
        self._disk = disk
        self._fd = fd
        self._node = node
        self._pending: list[Buffer] = []
        self._flushed = length

    def append(self, data: Buffer) -> None:
        if buffer_size(data):
            self._pending.append(data)
            self.length += buffer_size(data)
            self.dirty = True
            if self.length - self._flushed >= self._disk.gather_bytes:
                self.flush()

    def flush(self) -> None:
        if self._pending:
            data = b"".join(self._pending)
            self._disk.record(Op("write", self._node, self._flushed, data))
            os.pwrite(self._fd, data, self._flushed)
            self._flushed += len(data)
            self._pending.clear()

    def patchable(self, offset: int, size: int) -> None:
        pass

    def verify_in_place(self) -> None:
        pass

    def patch(self, offset: int, data: bytes) -> None:
        if offset + len(data) > self._flushed:
            raise ValueError(f"{self.path}: patch at {offset} reaches beyond what is flushed")
        self.dirty = True
        self._disk.record(Op("write", self._node, offset, data))
        os.pwrite(self._fd, data, offset)

    def sync(self) -> None:
        self._disk.before_sync()
        self._disk.record(Op("sync", self._node))

    def close(self) -> None:
        if self._fd >= 0:
            self.flush()
            os.close(self._fd)
            self._fd = -1

    def forget(self) -> None:
        if self._fd >= 0:
            self._pending.clear()
            os.close(self._fd)
            self._fd = -1
