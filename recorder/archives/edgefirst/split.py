"""Which samples are for training, validation and testing.

Whole sequences, or blocks of time of one, fall to a group by a hash of their name: that needs no
knowledge of the rest of the dataset, so that no sample ever changes its group because others are
added, and anybody can tell it again.  All cameras of a session fall alike.

    share = first 8 bytes of SHA-256 of KEY, big endian, / 2**64
    test if share < TEST, val if share < TEST + VAL, else train

KEY is ``SEED:SEQUENCE`` or, by blocks, ``SEED:SEQUENCE:NUMBER``; NUMBER counts blocks from the
start of the session.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

TRAIN, VAL, TEST = "train", "val", "test"
GROUPS = (TRAIN, VAL, TEST)


@dataclass(frozen=True)
class Split:
    """The rule.

    Attributes:
        by: ``sequence``, ``block`` or ``none``.
        val, test: shares of these groups, 0 to 1; the rest is for training.
        block_ns: length of a block.
        seed: any text; another one gives another split.
    """

    by: str = "sequence"
    val: float = 0.2
    test: float = 0.0
    block_ns: int = 60_000_000_000
    seed: str = ""

    def group(self, sequence: str, since_start_ns: int) -> str | None:
        """The group of a sample; None where samples have none.

        Args:
            sequence: name of the session's sequence, without the camera's.
            since_start_ns: from the session's start to the sample.
        """
        if self.by == "none":
            return None
        key = f"{self.seed}:{sequence}"
        if self.by == "block":
            key += f":{since_start_ns // self.block_ns}"
        share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
        if share < self.test:
            return TEST
        return VAL if share < self.test + self.val else TRAIN
