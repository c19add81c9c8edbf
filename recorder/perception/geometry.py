"""Rigid transformations: quaternions, matrices, interpolation.

Quaternions are x, y, z, w.  A transformation ``T_a_b`` is f8 [4, 4] and maps points of frame a to
frame b, as in ``calibration.yaml``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_NEARLY_EQUAL = 0.9995
"""Cosine of half the angle between two rotations above which linear interpolation suffices."""
# The entries of a rotation matrix, row by row, are FACTOR * (FIRST + SIGN * SECOND), plus 1 on the
# diagonal.  FIRST and SECOND are products of two of x, y, z, w; product 4 * i + j is i times j.
_FIRST = np.array([5, 1, 2, 1, 0, 6, 2, 6, 0])  # yy xy xz, xy xx yz, xz yz xx
_SECOND = np.array([10, 11, 7, 11, 10, 3, 7, 3, 5])  # zz zw yw, zw zz xw, yw xw yy
_SIGN = np.array([1.0, -1, 1, 1, 1, -1, -1, 1, 1])
_FACTOR = np.array([-2.0, 2, 2, 2, -2, 2, 2, 2, -2])


def rotation_of_quaternion(quaternion_xyzw: npt.ArrayLike) -> Floats:
    """Return rotation matrices f8 [..., 3, 3] of quaternions [..., 4] of any non-zero length.

    Raises:
        ValueError: a quaternion is zero or not finite.
    """
    q = np.asarray(quaternion_xyzw, np.float64)
    length = np.sqrt(np.sum(q * q, axis=-1, keepdims=True))
    if not np.isfinite(length).all() or not (length > 0).all():
        raise ValueError(f"not a rotation: {q.tolist()}")
    q = q / length
    products = (q[..., :, None] * q[..., None, :]).reshape(*q.shape[:-1], 16)
    rotation = _FACTOR * (products.take(_FIRST, -1) + _SIGN * products.take(_SECOND, -1))
    rotation[..., ::4] += 1
    return np.asarray(rotation.reshape(*q.shape[:-1], 3, 3))


def quaternion_of_rotation(rotation: npt.ArrayLike) -> Floats:
    """Return unit quaternions f8 [..., 4] with w >= 0 of rotation matrices [..., 3, 3].

    Matrices may be off by rounding.  The largest of the four components is computed first, to
    avoid division by a small number (Shepperd's method).
    """
    r = np.asarray(rotation, np.float64)
    shape = r.shape[:-2]
    r = r.reshape(-1, 3, 3)
    xx, yy, zz = r[:, 0, 0], r[:, 1, 1], r[:, 2, 2]
    squares = np.stack([1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz, 1 + xx + yy + zz], 1)
    largest = np.argmax(squares, axis=1)
    yz, zy = r[:, 1, 2], r[:, 2, 1]
    xz, zx = r[:, 0, 2], r[:, 2, 0]
    xy, yx = r[:, 0, 1], r[:, 1, 0]
    products = np.stack(
        [
            np.stack([squares[:, 0], xy + yx, xz + zx, zy - yz], 1),
            np.stack([xy + yx, squares[:, 1], yz + zy, xz - zx], 1),
            np.stack([xz + zx, yz + zy, squares[:, 2], yx - xy], 1),
            np.stack([zy - yz, xz - zx, yx - xy, squares[:, 3]], 1),
        ],
        axis=1,
    )
    q = products[np.arange(len(r)), largest]
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    q[q[:, 3] < 0] *= -1
    return np.asarray(q.reshape(*shape, 4))


def rotation_of_rpy(rpy_rad: npt.ArrayLike) -> Floats:
    """Return rotation matrices f8 [..., 3, 3] of roll, pitch, yaw [..., 3].

    They are Rz(yaw) Ry(pitch) Rx(roll).
    """
    roll, pitch, yaw = np.moveaxis(np.asarray(rpy_rad, np.float64) / 2, -1, 0)
    cr, sr, cp, sp = np.cos(roll), np.sin(roll), np.cos(pitch), np.sin(pitch)
    cy, sy = np.cos(yaw), np.sin(yaw)
    quaternion = np.stack(
        [
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
            cr * cp * cy + sr * sp * sy,
        ],
        axis=-1,
    )
    return rotation_of_quaternion(quaternion)


def transform(rotation: npt.ArrayLike, translation: npt.ArrayLike) -> Floats:
    """Return transformations f8 [..., 4, 4] of rotations [..., 3, 3] and translations [..., 3]."""
    r, t = np.asarray(rotation, np.float64), np.asarray(translation, np.float64)
    shape = np.broadcast_shapes(r.shape[:-2], t.shape[:-1])
    matrix = np.zeros((*shape, 4, 4))
    matrix[..., :3, :3], matrix[..., :3, 3], matrix[..., 3, 3] = r, t, 1.0
    return matrix


def invert(matrix: npt.ArrayLike) -> Floats:
    """Return inverses f8 [..., 4, 4] of rigid transformations."""
    m = np.asarray(matrix, np.float64)
    back = np.swapaxes(m[..., :3, :3], -1, -2)
    return transform(back, -(back @ m[..., :3, 3, None])[..., 0])


def apply(matrix: npt.ArrayLike, points: npt.ArrayLike) -> Floats:
    """Map points [..., 3] of the source frame to the target frame of a transformation [4, 4]."""
    m, p = np.asarray(matrix, np.float64), np.asarray(points, np.float64)
    return np.asarray(p @ m[:3, :3].T + m[:3, 3])


def slerp(first: npt.ArrayLike, second: npt.ArrayLike, share: npt.ArrayLike) -> Floats:
    """Interpolate between two rotations, along the shorter way at a constant rate.

    Args:
        first, second: unit quaternions [n, 4].
        share: [n], 0 gives the first, 1 the second.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    s = np.asarray(share, np.float64)[..., None]
    cosine = np.sum(a * b, axis=-1, keepdims=True)
    b = np.where(cosine < 0, -b, b)
    cosine = np.minimum(np.abs(cosine), 1.0)
    near = cosine > _NEARLY_EQUAL
    angle = np.arccos(np.where(near, 0.0, cosine))
    sine = np.sin(angle)
    mixed = np.where(
        near,
        (1 - s) * a + s * b,
        (np.sin((1 - s) * angle) * a + np.sin(s * angle) * b) / sine,
    )
    return np.asarray(mixed / np.linalg.norm(mixed, axis=-1, keepdims=True))


def interpolate_poses(
    t_ns: npt.NDArray[np.int64], poses: Floats, wanted_ns: npt.NDArray[np.int64]
) -> Floats:
    """Interpolate poses at other times: translations linearly, rotations by `slerp`.

    Before the first and after the last time the nearest pose is used.

    Args:
        t_ns: int64 [n], strictly increasing, n >= 1.
        poses: f8 [n, 4, 4].
        wanted_ns: int64 [m].

    Returns:
        f8 [m, 4, 4].
    """
    if len(t_ns) == 1:
        return np.repeat(poses, len(wanted_ns), axis=0)
    wanted = np.clip(wanted_ns, t_ns[0], t_ns[-1])
    after = np.clip(np.searchsorted(t_ns, wanted, side="left"), 1, len(t_ns) - 1)
    before = after - 1
    span = (t_ns[after] - t_ns[before]).astype(np.float64)
    share = (wanted - t_ns[before]) / span
    around = poses[np.stack([before, after])]
    first, second = quaternion_of_rotation(around[..., :3, :3])
    start, end = around[..., :3, 3]
    turned = rotation_of_quaternion(slerp(first, second, share))
    return transform(turned, start + share[:, None] * (end - start))


def is_rotation(matrix: npt.ArrayLike, tolerance: float = 1e-3) -> npt.NDArray[np.bool_]:
    """Return where the matrices [n, 3, 3] are rotations, within the tolerance."""
    r = np.asarray(matrix, np.float64)
    finite = np.asarray(np.isfinite(r).all(axis=(1, 2)))
    r = np.where(finite[:, None, None], r, 0.0)
    off = np.abs(np.swapaxes(r, 1, 2) @ r - np.eye(3)).max(axis=(1, 2), initial=0.0)
    good: npt.NDArray[np.bool_] = finite & (off < tolerance) & (np.linalg.det(r) > 0)
    return good
