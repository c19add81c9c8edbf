"""Random numbers of the simulation, each fixed by a seed, a purpose and an index.

The simulated sensors need random access: the noise of sample N does not depend on the samples
before it.  The numbers are the raw output of Philox, whose stream numpy guarantees.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def bits(seed: int, purpose: str, index: int, count: int) -> npt.NDArray[np.uint64]:
    """Return `count` random uint64, fixed by seed, purpose and index, in any order of calls.

    Args:
        seed: the user's, from 0.
        purpose: of the numbers, up to 8 ASCII letters; distinguishes streams.
        index: of the sample, sweep, frame or block, from 0.
        count: number of values.
    """
    tag = int.from_bytes(purpose.encode("ascii").ljust(8, b"\0")[:8], "little")
    mask = (1 << 64) - 1
    high = seed >> 64
    generator = np.random.Philox(
        key=((seed & mask) << 64) | tag, counter=((high & mask) << 192) | ((index & mask) << 128)
    )
    return np.asarray(generator.random_raw(count), np.uint64)


def uniform(seed: int, purpose: str, index: int, count: int) -> Floats:
    """Return `count` numbers in the open interval (0, 1), see `bits`."""
    whole = bits(seed, purpose, index, count) >> np.uint64(12)
    return (whole.astype(np.float64) + 0.5) * 2.0**-52


def normal(seed: int, purpose: str, index: int, count: int) -> Floats:
    """Return `count` standard normal numbers by Box and Muller, see `bits`."""
    pairs = (count + 1) // 2
    u = uniform(seed, purpose, index, 2 * pairs)
    radius, angle = np.sqrt(-2.0 * np.log(u[:pairs])), 2.0 * np.pi * u[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def noise_seed(seed: int, name: str, usual: str) -> int:
    """Return the seed of a sensor's noise: `seed` itself for a sensor of the usual name.

    Sensors with the same seed share a world, but each has its own noise.

    >>> noise_seed(3, "radar", "radar"), noise_seed(3, "side", "radar") == 3
    (3, False)

    Args:
        seed: the user's.
        name: the sensor's.
        usual: the name of a sensor that is the only one of its kind.
    """
    return seed + ((zlib.crc32(name.encode()) ^ zlib.crc32(usual.encode())) << 64)
