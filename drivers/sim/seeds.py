"""Seeds of noise: sensors with the same seed share a world, but each has its own noise."""

from __future__ import annotations

import zlib


def noise_seed(seed: int, name: str, usual: str) -> int:
    """Return the seed of a sensor's noise: `seed` itself for a sensor of the usual name.

    >>> noise_seed(3, "radar", "radar"), noise_seed(3, "side", "radar") == 3
    (3, False)

    Args:
        seed: the user's.
        name: the sensor's.
        usual: the name of a sensor that is the only one of its kind.
    """
    return seed + ((zlib.crc32(name.encode()) ^ zlib.crc32(usual.encode())) << 64)
