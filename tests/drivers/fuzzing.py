"""What the fuzz tests of several devices share."""

from __future__ import annotations

import os
import random
from pathlib import Path

GROWTH = 24 << 20


def mutated(rng: random.Random, data: bytes, parts: tuple[bytes, ...] = ()) -> bytes:
    """The message with something wrong, or not wrong at all."""
    changed = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << rng.randrange(8)
            case 1:
                del changed[at:]
            case 2:
                del changed[at : at + rng.randrange(1, 20)]
            case 3:
                changed[at:at] = rng.randbytes(rng.randrange(1, 40))
            case 4 if parts:
                changed[at:at] = rng.choice(parts)
            case _:
                changed[at:at] = changed[at : at + 60]
    return bytes(changed)


def refitted(rng: random.Random, message: bytes) -> bytes:
    """Every third message of an MTi with a checksum that is right: what decodes it gets it."""
    if len(message) < 6 or rng.random() > 0.3:
        return message
    return message[:-1] + bytes([-sum(message[1:-1]) & 0xFF])


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
