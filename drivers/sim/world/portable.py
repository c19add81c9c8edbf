"""Arithmetic with identical bits on every machine.

The simulated sensors give the same bytes for the same seed on all machines.  numpy's own ``sin``,
``exp`` or ``arctan2``, matrix products, sums along an axis and `Generator` methods may differ in
the last bit between processors and releases (SIMD width, fused multiply-add, BLAS).  This module
uses only operations that IEEE 754 defines to the bit, one numpy ufunc each: ``+ - * /``, ``sqrt``,
``floor``, ``rint``, ``frexp``, and integers.  Random numbers are the raw output of Philox, whose
stream numpy guarantees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PI = 3.141592653589793
TURN = 6.283185307179586

# pi/2 in three parts: multiples of the first two below 2^20 are exact.
_PIO2 = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_SIN = tuple((-1) ** k / f for k, f in ((1, 6), (2, 120), (3, 5040), (4, 362880), (5, 39916800),
        (6, 6227020800), (7, 1307674368000), (8, 355687428096000)))  # fmt: skip
_COS = tuple((-1) ** k / f for k, f in ((1, 2), (2, 24), (3, 720), (4, 40320), (5, 3628800),
        (6, 479001600), (7, 87178291200), (8, 20922789888000), (9, 6402373705728000)))  # fmt: skip
_ATAN_STEPS = 11
_LN2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_SQRT_HALF = 0.7071067811865476


def sin_cos(angle_rad: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return sine and cosine of angles of any shape, accurate to 2e-16 for |angle| up to 1e6."""
    angle = np.asarray(angle_rad, np.float64)
    quarter = np.rint(angle * (2.0 / PI))
    rest = ((angle - quarter * _PIO2[0]) - quarter * _PIO2[1]) - quarter * _PIO2[2]
    square = rest * rest
    sine = rest + rest * square * _polynomial(square, _SIN)
    cosine = 1.0 + square * _polynomial(square, _COS)
    turn = quarter.astype(np.int64) & 3
    swap = (turn & 1) == 1
    s, c = np.where(swap, cosine, sine), np.where(swap, sine, cosine)
    return np.where(turn >= 2, -s, s), np.where((turn == 1) | (turn == 2), -c, c)


def sin(angle_rad: npt.ArrayLike) -> Floats:
    """Return the sine of angles of any shape."""
    return sin_cos(angle_rad)[0]


def atan2(y: npt.ArrayLike, x: npt.ArrayLike) -> Floats:
    """Return the angle in rad, -pi to pi, of points (x, y); 0 at the origin; accurate to 1e-15."""
    y, x = np.broadcast_arrays(np.asarray(y, np.float64), np.asarray(x, np.float64))
    high, low = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    ratio = low / np.where(high == 0, 1.0, high)
    # The angle is halved twice, so that a short series is sufficient.
    half = ratio / (1.0 + np.sqrt(1.0 + ratio * ratio))
    quarter = half / (1.0 + np.sqrt(1.0 + half * half))
    square = quarter * quarter
    series = np.full_like(quarter, 1.0 / (2 * _ATAN_STEPS + 1))
    for k in range(_ATAN_STEPS - 1, -1, -1):
        series = 1.0 / (2 * k + 1) - square * series
    angle = 4.0 * quarter * series
    angle = np.where(np.abs(y) > np.abs(x), PI / 2 - angle, angle)
    angle = np.where(x < 0, PI - angle, angle)
    return np.asarray(np.where(y < 0, -angle, angle))


def log(value: npt.ArrayLike) -> Floats:
    """Return the natural logarithm of positive values."""
    mantissa, exponent = np.frexp(np.asarray(value, np.float64))
    small = mantissa < _SQRT_HALF
    mantissa = np.where(small, mantissa * 2.0, mantissa)
    power = exponent - small
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = np.full_like(s, 1.0 / 23)
    for k in range(10, -1, -1):
        series = 1.0 / (2 * k + 1) + square * series
    return power * _LN2[0] + (2.0 * s * series + power * _LN2[1])


def rotate(rotation: Floats, vector: Floats) -> Floats:
    """rotation [..., 3, 3] times vector [..., 3], broadcast against each other."""
    x, y, z = vector[..., 0], vector[..., 1], vector[..., 2]
    rows = [rotation[..., k, 0] * x + rotation[..., k, 1] * y + rotation[..., k, 2] * z
            for k in range(3)]  # fmt: skip
    return np.stack(rows, axis=-1)


def rotate_back(rotation: Floats, vector: Floats) -> Floats:
    """The transpose of rotation [..., 3, 3] times vector [..., 3]."""
    return rotate(np.swapaxes(rotation, -1, -2), vector)


def product(first: Floats, second: Floats) -> Floats:
    """Matrix product of two [..., 3, 3]."""
    return np.stack([rotate(first, second[..., k]) for k in range(3)], axis=-1)


def cross(first: Floats, second: Floats) -> Floats:
    """Cross product of two [..., 3]."""
    a, b = first, second
    return np.stack(
        [
            a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1],
            a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2],
            a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0],
        ],
        axis=-1,
    )


def about_z(cosine: Floats, sine: Floats) -> Floats:
    """Rotations about z, [n, 3, 3], from cosines and sines of their angles, [n]."""
    zero, one = np.zeros_like(cosine), np.ones_like(cosine)
    rows = [[cosine, -sine, zero], [sine, cosine, zero], [zero, zero, one]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


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
    radius = np.sqrt(-2.0 * log(u[:pairs]))
    sine, cosine = sin_cos(TURN * u[pairs:])
    return np.concatenate([radius * cosine, radius * sine])[:count]


def _polynomial(x: Floats, coefficients: tuple[float, ...]) -> Any:
    value: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        value = coefficient + x * value
    return value
