"""Rotations of arrays of vectors in three dimensions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def rotate(rotation: Floats, vector: Floats) -> Floats:
    """Rotate vectors [..., 3] by matrices [..., 3, 3], broadcast against each other."""
    return np.asarray(np.einsum("...ij,...j->...i", rotation, vector))


def rotate_back(rotation: Floats, vector: Floats) -> Floats:
    """Rotate vectors [..., 3] by the transposes of matrices [..., 3, 3]."""
    return np.asarray(np.einsum("...ji,...j->...i", rotation, vector))


def about_z(cosine: Floats, sine: Floats) -> Floats:
    """Return rotations about z, f8 [n, 3, 3], from cosines and sines of their angles, [n]."""
    zero, one = np.zeros_like(cosine), np.ones_like(cosine)
    rows = [[cosine, -sine, zero], [sine, cosine, zero], [zero, zero, one]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
