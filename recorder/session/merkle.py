"""A tree of digests that grows by appending, as RFC 6962 (section 2.1) lays it out, over BLAKE3.

Only the roots of its complete subtrees are held, one for each bit of the number of leaves.  A
proof that a leaf is in the tree takes one digest per level.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from recorder.formats.digests import Leaf, digest

_LEAF, _NODE = b"\0", b"\1"  # a leaf is never mistaken for a node


def leaf_digest(path: str, leaf: Leaf) -> bytes:
    """The digest of a range of a file in the tree.

    Args:
        path: of the file, relative to its session.
        leaf: the range.
    """
    where = leaf.start.to_bytes(8, "little") + leaf.end.to_bytes(8, "little")
    return digest(_LEAF + path.encode() + b"\0" + where + leaf.digest)


def node_digest(left: bytes, right: bytes) -> bytes:
    """The digest of an inner node."""
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
            node = node_digest(self.peaks.pop(), node)
            size >>= 1
        self.peaks.append(node)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The digest of all leaves; without leaves the digest of no bytes."""
        if not self.peaks:
            return digest(b"")
        return reduce(lambda right, left: node_digest(left, right), reversed(self.peaks))
