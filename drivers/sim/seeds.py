"""Seeds of noise: sensors with one seed share a world, but no two of them their noise."""

from __future__ import annotations

import zlib


def noise_seed(seed: int, name: str, usual: str) -> int:
    """Seed of a sensor's noise: `seed` itself for a sensor of the usual name.

    >>> noise_seed(3, "radar", "radar"), noise_seed(3, "side", "radar") == 3
    (3, False)

    Args:
        seed: the user's.
        name: the sensor's.
        usual: the name that a lone sensor of its kind has.
    """
    return seed + ((zlib.crc32(name.encode()) ^ zlib.crc32(usual.encode())) << 64)
