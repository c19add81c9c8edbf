"""CRC-32 of joined bytes, from the CRC-32 of each part (arithmetic as zlib's ``crc32_combine``)."""

from __future__ import annotations

import functools

_POLYNOMIAL = 0xEDB88320  # the highest bit is x^0, the lowest x^31; x^32 is left out


def combine_crc32(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC-32 of two parts, one after another.

    Args:
        first, second: the CRC-32 of each part.
        second_bytes: size of the second part.
    """
    return _multiply(_raise_power(second_bytes), first) ^ second


def _multiply(a: int, b: int) -> int:
    """Return the product of two polynomials, modulo the CRC's polynomial."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@functools.lru_cache(maxsize=1024)
def _raise_power(count: int) -> int:
    """Return the polynomial x^(8 * count), modulo the CRC's polynomial."""
    power, square = 1 << 31, 1 << 23  # x^0, x^8
    while count:
        if count & 1:
            power = _multiply(power, square)
        square = _multiply(square, square)
        count >>= 1
    return power
