"""A tree of digests that grows by appending, as in RFC 6962 (section 2.1), over BLAKE3.

Only the roots of its complete subtrees are held, one for each bit of the number of leaves.  A
proof that consecutive leaves are in the tree takes at most two digests per level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

from recorder.common.errors import FormatError
from recorder.session.journal.digests import Leaf, digest

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
