"""Digests of appended bytes, computed while the bytes are still in memory.

A file's bytes are digested in *leaves*: consecutive ranges of about a second. Every append updates
the digest of the open leaf, so that its value is known at any length::

    disk = DigestingDisk(PosixDisk(), announce=witness.write)
    file = disk.create(path)            # a DigestedFile
    file.append(data)
    file.running()                      # digest of [file.start, file.length)
    file.seal()                         # ends the leaf; the next one begins here

Ranges that are patched in place later (sizes and counts in the headers of AVI and VRS files) are
digested as zeros: `AppendFile.patchable` declares them before they are appended.

The leaves of all files form a tree that grows by appending, as in RFC 6962 (section 2.1).  Only the
roots of its complete subtrees are held, one for each bit of the number of leaves.  A proof that
consecutive leaves are in the tree takes at most two digests per level.

BLAKE3 (RFC draft-aumasson-blake3, 32 bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import attrgetter
from pathlib import Path
from typing import Any

from blake3 import blake3

from recorder.common.errors import FormatError
from recorder.common.files import GATHER_BUFFERS, AppendFile, Buffer, Disk, buffer_size

DIGEST_BYTES = 32
_PAGE = 4096
_BLOCK = 4 << 20

Range = tuple[int, int]
"""Offset and size, in bytes."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A range of a file with its digest.

    Attributes:
        start, end: offsets in bytes.
        digest: BLAKE3 of [start, end), patchable ranges as zeros.
    """

    start: int
    end: int
    digest: bytes


@dataclass(slots=True)
class Digested:
    """Known digests of a file.

    Attributes:
        start: end of the committed leaves.
        patchable: ranges that the digests leave out.
    """

    start: int = 0
    patchable: list[Range] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Announcement:
    """Digest of bytes that are about to be handed to the kernel.

    Attributes:
        path: path of the file.
        leaf: range of the bytes, with its digest.
        ranges: patchable ranges that no commit contains yet.
    """

    path: Path
    leaf: Leaf
    ranges: tuple[Range, ...] = ()


Announce = Callable[[Sequence[Announcement]], None]


def digest(data: Buffer) -> bytes:
    """Compute the BLAKE3 digest of some bytes."""
    return blake3(data).digest()


def zero_ranges(data: Buffer, at: int, ranges: Iterable[Range]) -> Buffer:
    """Return bytes with ranges set to zero; the same object if no range overlaps them.

    Args:
        data: bytes of a file.
        at: offset of the bytes in the file.
        ranges: patchable ranges of that file.
    """
    end = at + buffer_size(data)
    hit = [(o, n) for o, n in ranges if o < end and o + n > at]
    if not hit:
        return data
    copy = bytearray(data)
    for offset, size in hit:
        first, last = max(offset, at) - at, min(offset + size, end) - at
        copy[first:last] = bytes(last - first)
    return bytes(copy)


def digest_patched(path: Path, ranges: Iterable[Range]) -> bytes:
    """Compute the BLAKE3 digest of a file's bytes in some ranges, one after the other."""
    hasher = blake3()
    with path.open("rb") as file:
        for offset, size in sorted(ranges):
            file.seek(offset)
            hasher.update(file.read(size))
    return hasher.digest()


class RunningDigest:
    """Digest of a growing range of a file.

    Attributes:
        start, end: the range.
        ranges: patchable ranges.
    """

    def __init__(self, start: int, ranges: Sequence[Range] = ()) -> None:
        self.start = self.end = start
        self.ranges = ranges
        self._hasher = blake3()

    def update(self, data: Buffer) -> None:
        self._hasher.update(zero_ranges(data, self.end, self.ranges) if self.ranges else data)
        self.end += buffer_size(data)

    def leaf(self) -> Leaf:
        """Return the range so far."""
        return Leaf(self.start, self.end, self._hasher.digest())


def digest_file(path: Path, start: int, end: int, ranges: Sequence[Range]) -> RunningDigest:
    """Compute the digest of a file's bytes; raise ValueError if the file ends before `end`."""
    running = RunningDigest(start, ranges)
    with path.open("rb") as file:
        file.seek(start)
        while left := end - running.end:
            if not (data := file.read(min(left, _BLOCK))):
                raise ValueError(f"{path}: ends at {running.end}, not at {end}")
            running.update(data)
    return running


def _delegate(name: str) -> Any:
    """Make a property that reads and writes an attribute of `inner`."""
    found = attrgetter(f"inner.{name}")
    return property(found, lambda file, value: setattr(file.inner, name, value))


class DigestedFile:
    """`AppendFile` that digests appended bytes; see the module.

    Attributes:
        leaves: sealed ranges that `take_leaves` has not returned yet.
        patchable_ranges: all declared ranges.
    """

    path: Path = _delegate("path")
    length: int = _delegate("length")
    dirty: bool = _delegate("dirty")

    def __init__(
        self,
        inner: AppendFile,
        running: RunningDigest,
        gather_bytes: int,
        announce: Announce,
        ranges: Sequence[Range] = (),
    ) -> None:
        self.inner = inner
        self.leaves: list[Leaf] = []
        self.patchable_ranges: list[Range] = list(ranges)
        self._new_ranges: list[Range] = []
        self._read_again = False
        running.ranges = self.patchable_ranges
        self._running = running
        self._gather_bytes = gather_bytes
        self._announce = announce
        self._announced = running.end
        self._marks: list[Leaf] = []
        self._waiting = self._buffers = 0

    @property
    def start(self) -> int:
        """Offset at which the open leaf begins."""
        return self._running.start

    def append(self, data: Buffer) -> None:
        size = buffer_size(data)
        if not size:
            return
        if self._read_again:
            self._digest_again()
        running = self._running
        # A kill may end a write at any page: the bytes before that page need a digest, too.
        if running.end % _PAGE + size > _PAGE and running.end > self._announced:
            self._marks.append(running.leaf())
        running.update(data)
        self._waiting += size
        self._buffers += 1
        if self._waiting >= self._gather_bytes or self._buffers >= GATHER_BUFFERS:
            self._announce(self.announcements())
        self.inner.append(data)

    def announcements(self) -> list[Announcement]:
        """Return the digests of all bytes that are not announced yet; the caller announces them."""
        self._waiting = self._buffers = 0
        if self._running.end == self._announced:
            return []
        leaves = [leaf for leaf in (*self._marks, self.running()) if leaf.end > leaf.start]
        self._marks.clear()
        self._announced = self._running.end
        ranges = tuple(self._new_ranges)
        return [Announcement(self.inner.path, leaf, ranges) for leaf in leaves]

    def flush(self) -> None:
        if entries := self.announcements():
            self._announce(entries)
        self.inner.flush()

    def patchable(self, offset: int, size: int) -> None:
        if (offset, size) not in self.patchable_ranges:
            self.patchable_ranges.append((offset, size))
            self._new_ranges.append((offset, size))
            self._read_again |= offset < self._running.end

    def patch(self, offset: int, data: bytes) -> None:
        if not any(o <= offset and offset + len(data) <= o + n for o, n in self.patchable_ranges):
            raise ValueError(f"{self.path}: {len(data)} bytes at {offset} were not named patchable")
        self.inner.patch(offset, data)

    def verify_in_place(self) -> None:
        self.inner.verify_in_place()

    def sync(self) -> None:
        self.inner.sync()

    def close(self) -> None:
        if entries := self.announcements():
            self._announce(entries)
        self.inner.close()

    def running(self) -> Leaf:
        """Return the open leaf so far."""
        if self._read_again:
            self._digest_again()
        return self._running.leaf()

    def _digest_again(self) -> None:
        """Digest the open leaf again, after a reopened file declared new ranges."""
        start, end = self._running.start, self._running.end
        self._running = digest_file(self.path, start, end, self.patchable_ranges)
        self._read_again = False

    def seal(self) -> None:
        """End the open leaf, unless it is empty."""
        if self._running.end > self._running.start:
            self.leaves.append(self.running())
            if self._running.end > self._announced:
                self._marks.append(self.leaves[-1])
            self._running = RunningDigest(self._running.end, self.patchable_ranges)

    def digest_patched(self) -> bytes:
        """Return the digest of the bytes of the patchable ranges, which must be flushed."""
        return digest_patched(self.path, self.patchable_ranges)

    def take_ranges(self) -> list[Range]:
        """Return the ranges that were declared since the last call."""
        ranges, self._new_ranges = self._new_ranges, []
        return ranges

    def take_leaves(self) -> list[Leaf]:
        """Return the leaves that were sealed since the last call."""
        leaves, self.leaves = self.leaves, []
        return leaves


class DigestingDisk:
    """`Disk` whose files are `DigestedFile`.

    Args:
        plain: the underlying disk, also for files without a digest.
        announce: called with digests before the bytes are handed to the kernel.
        known: returns the digests of an earlier writer's file, by path and length.

    Attributes:
        plain: the underlying disk.
    """

    def __init__(
        self, plain: Disk, announce: Announce, known: Callable[[Path, int], Digested]
    ) -> None:
        self.plain = plain
        self.gather_bytes = plain.gather_bytes
        self.write_file = plain.write_file
        self.make_folder = plain.make_folder
        self.rename = plain.rename
        self.remove = plain.remove
        self.scratch = plain.scratch
        self.sync_folder = plain.sync_folder
        self.free_bytes = plain.free_bytes
        self._announce = announce
        self._known = known

    def create(self, path: Path) -> AppendFile:
        return self._file(self.plain.create(path), RunningDigest(0))

    def reopen(self, path: Path, length: int) -> AppendFile:
        inner = self.plain.reopen(path, length)
        known = self._known(path, length)
        running = digest_file(path, known.start, length, known.patchable)
        return self._file(inner, running, known.patchable)

    def _file(
        self, inner: AppendFile, running: RunningDigest, ranges: Sequence[Range] = ()
    ) -> DigestedFile:
        return DigestedFile(inner, running, self.gather_bytes, self._announce, ranges)

    def sync_files(self, files: Sequence[AppendFile]) -> None:
        self.plain.sync_files([f.inner if isinstance(f, DigestedFile) else f for f in files])


_LEAF, _NODE = b"\0", b"\1"  # a leaf is never mistaken for a node


def digest_leaf(path: str, leaf: Leaf) -> bytes:
    """Return the digest of a range of a file in the tree.

    Args:
        path: of the file, relative to its session.
        leaf: the range.
    """
    where = leaf.start.to_bytes(8, "little") + leaf.end.to_bytes(8, "little")
    return digest(_LEAF + path.encode() + b"\0" + where + leaf.digest)


def digest_node(left: bytes, right: bytes) -> bytes:
    """Return the digest of an inner node."""
    return digest(_NODE + left + right)


@dataclass(slots=True)
class MerkleTree:
    """The tree so far.

    Attributes:
        size: leaves.
        peaks: roots of its complete subtrees, the largest first.
    """

    size: int = 0
    peaks: list[bytes] = field(default_factory=list)

    def append(self, leaf: bytes) -> None:
        """Add a leaf's digest."""
        size, node = self.size, leaf
        while size & 1:
            node = digest_node(self.peaks.pop(), node)
            size >>= 1
        self.peaks.append(node)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The digest of all leaves; without leaves the digest of no bytes."""
        if not self.peaks:
            return digest(b"")
        return reduce(lambda right, left: digest_node(left, right), reversed(self.peaks))


def prove_range(leaves: Sequence[bytes], start: int, stop: int) -> list[bytes]:
    """Return the nodes beside the leaves ``[start, stop)``, at least one, from left to right.

    Args:
        leaves: digests of all leaves of the tree.
        start, stop: the range.
    """
    nodes: list[bytes] = []

    def climb(first: int, behind: int) -> None:
        if behind <= start or first >= stop:
            tree = MerkleTree()
            for leaf in leaves[first:behind]:
                tree.append(leaf)
            nodes.append(tree.root)
        elif behind - first > 1:
            middle = _find_middle(first, behind)
            climb(first, middle)
            climb(middle, behind)

    climb(0, len(leaves))
    return nodes


def compute_range_root(
    size: int, start: int, leaves: Sequence[bytes], nodes: Sequence[bytes]
) -> bytes:
    """Return the root of a tree that has these leaves side by side.

    Args:
        size: of the tree.
        start: index of the first of the leaves.
        leaves: their digests.
        nodes: as `prove_range` returns them.

    Raises:
        FormatError: there are too many or too few of them.
    """
    stop = start + len(leaves)
    if not 0 <= start < stop <= size or len(nodes) > 2 * size.bit_length():
        raise FormatError(f"leaves {start} to {stop} of a tree of {size}")
    beside: Iterator[bytes] = iter(nodes)

    def climb(first: int, behind: int) -> bytes:
        if behind <= start or first >= stop:
            return next(beside)
        if behind - first == 1:
            return leaves[first - start]
        middle = _find_middle(first, behind)
        return digest_node(climb(first, middle), climb(middle, behind))

    try:
        root = climb(0, size)
    except StopIteration:
        raise FormatError("a tree's proof lacks nodes") from None
    if next(beside, None) is not None:
        raise FormatError("a tree's proof has too many nodes")
    return root


def _find_middle(first: int, behind: int) -> int:
    """Return where a subtree is divided: the left half is the largest complete tree."""
    return first + (1 << (behind - first - 1).bit_length() - 1)
