"""Assigns samples to training, validation and testing.

A hash of a name assigns whole sequences, or blocks of time, to a group.  The hash does not depend
on the rest of the dataset: adding samples never moves a sample to another group, and the group can
be computed again from the name.  All cameras of a session get the same group.

    share = first 8 bytes of SHA-256 of KEY, big endian, / 2**64
    test if share < TEST, val if share < TEST + VAL, else train

KEY is ``:SEQUENCE`` or, by blocks of a minute, ``:SEQUENCE:NUMBER``; NUMBER counts blocks from the
start of the session.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

TRAIN, VAL, TEST = "train", "val", "test"
GROUPS = (TRAIN, VAL, TEST)
BLOCK_NS = 60_000_000_000


@dataclass(frozen=True)
class Split:
    """The rule of the split.

    Attributes:
        by: ``sequence``, ``block`` or ``none``.
        val, test: shares of these groups, 0 to 1; the remaining samples are for training.
    """

    by: str = "sequence"
    val: float = 0.2
    test: float = 0.0

    def group(self, sequence: str, since_start_ns: int) -> str | None:
        """The group of a sample; None without a split.

        Args:
            sequence: name of the session's sequence, without the camera's name.
            since_start_ns: time from the session's start to the sample.
        """
        if self.by == "none":
            return None
        key = f":{sequence}"
        if self.by == "block":
            key += f":{since_start_ns // BLOCK_NS}"
        share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
        if share < self.test:
            return TEST
        return VAL if share < self.test + self.val else TRAIN
