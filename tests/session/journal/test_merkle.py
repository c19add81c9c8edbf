"""The tree of leaves is RFC 6962's, and a proof climbs from any leaf to its root."""

from __future__ import annotations

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.session.journal.digests import (
    Leaf,
    MerkleTree,
    compute_range_root,
    digest_leaf,
    digest_node,
    prove_range,
)


def root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, as it is written there."""
    if len(leaves) < 2:
        return leaves[0] if leaves else blake3(b"").digest()
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return blake3(b"\1" + root(leaves[:k]) + root(leaves[k:])).digest()


def path(m: int, leaves: list[bytes]) -> list[tuple[bool, bytes]]:
    """PATH(m, D[n]) of section 2.1.1; each digest with whether it stands to the left."""
    if len(leaves) == 1:
        return []
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    if m < k:
        return [*path(m, leaves[:k]), (False, root(leaves[k:]))]
    return [*path(m - k, leaves[k:]), (True, root(leaves[:k]))]


@pytest.mark.parametrize("count", range(35))
def test_the_root_is_the_specifications_and_every_leaf_climbs_to_it(count: int) -> None:
    leaves = [digest_leaf(f"imu/{n}", Leaf(n, n + 8, bytes([n]) * 32)) for n in range(count)]
    tree = MerkleTree()
    for leaf in leaves:
        tree.append(leaf)
    assert tree.size == count and tree.root == root(leaves)
    assert len(tree.peaks) == count.bit_count()
    for m, node in enumerate(leaves):
        for left, other in path(m, leaves):
            node = digest_node(other, node) if left else digest_node(node, other)
        assert node == tree.root


def test_a_leaf_is_its_path_its_range_and_its_digest() -> None:
    leaf = Leaf(3, 9, b"d" * 32)
    found = {
        digest_leaf(name, Leaf(*values))
        for name, values in (
            ("a", (3, 9, b"d" * 32)),
            ("b", (3, 9, b"d" * 32)),
            ("a", (4, 9, b"d" * 32)),
            ("a", (3, 8, b"d" * 32)),
            ("a", (3, 9, b"e" * 32)),
        )
    }
    assert len(found) == 5 and digest_leaf("a", leaf) in found
    where = (3).to_bytes(8, "little") + (9).to_bytes(8, "little")
    assert digest_leaf("a", leaf) == blake3(b"\0a\0" + where + b"d" * 32).digest()


@given(st.data())
def test_leaves_side_by_side_climb_to_the_root(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 200))
    start = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(start + 1, count))
    leaves = [digest_leaf("imu/acc", Leaf(n, n + 1, bytes(32))) for n in range(count)]
    nodes, inside, whole = prove_range(leaves, start, stop), leaves[start:stop], root(leaves)
    assert compute_range_root(count, start, inside, nodes) == whole
    assert len(nodes) <= 2 * count.bit_length()

    def climbs(start: int, inside: list[bytes], nodes: list[bytes]) -> bool:
        try:
            return compute_range_root(count, start, inside, nodes) == whole
        except FormatError:
            return False

    changed = data.draw(st.integers(0, len(inside) - 1))
    other = bytes([inside[changed][0] ^ 1]) + inside[changed][1:]
    assert not climbs(start, [*inside[:changed], other, *inside[changed + 1 :]], nodes)
    for k, node in enumerate(nodes):
        assert not climbs(start, inside, [*nodes[:k], node[:-1] + b"x", *nodes[k + 1 :]])
        assert not climbs(start, inside, [*nodes[:k], *nodes[k + 1 :]])
    assert not climbs(start, inside, [*nodes, whole])
    assert not climbs(start, inside[1:], nodes)
    if len(inside) > 1:
        assert not climbs(start, inside[::-1], nodes)
    for elsewhere in range(count - len(inside) + 1):
        assert climbs(elsewhere, inside, nodes) == (elsewhere == start)


@pytest.mark.parametrize(
    ("size", "start", "count"), [(0, 0, 1), (3, -1, 1), (3, 2, 2), (3, 1, 0), (1 << 70, 0, 1)]
)
def test_ranges_of_no_tree_are_refused(size: int, start: int, count: int) -> None:
    with pytest.raises(FormatError):
        compute_range_root(size, start, [bytes(32)] * count, [bytes(32)] * 3)
