"""A simulated camera's raw pictures, in the bytes that a V4L2 device delivers.

``sim:`` unpacks the bytes by the same code as the pictures of a device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from drivers._protocols.raw_pictures import RAW_FORMATS, RawFormat, unpacked
from drivers.sim.camera import Image, SimulatedCamera
from recorder.contract.errors import SourceError
from recorder.contract.raw_pixels import Levels

_CHANNEL = {"B": 0, "G": 1, "R": 2}  # of a BGR picture


def raw_format(name: str, pixel_format: str | None, width: int) -> RawFormat | None:
    """Return the raw format that a simulated camera's options name; None if it makes JPEGs.

    Args:
        name: the sensor's name, for messages.
        pixel_format: the option.
        width: of the pictures, in pixels.

    Raises:
        SourceError: the simulated camera does not have the format, or not with that width.
    """
    if pixel_format in (None, "MJPG"):
        return None
    form = RAW_FORMATS.get(pixel_format or "")
    if form is None:
        known = ", ".join(RAW_FORMATS)
        raise SourceError(f"{name}: pixel_format: a simulated camera offers MJPG, {known}")
    if width % form.group:
        raise SourceError(f"{name}: width: {form.name} needs a multiple of {form.group} pixels")
    return form


def raw_values(image: Image, levels: Levels) -> npt.NDArray[Any]:
    """The values of a sensor that sees a picture.

    Args:
        image: u1 [height, width, 3], BGR.
        levels: the sensor's; its pattern decides the colour of each pixel.

    Returns:
        u1 or u2 [height, width].
    """
    import cv2

    values = np.empty(image.shape[:2], "<" + levels.pixels.dtype)
    for rows, columns, colour in levels.pixels.places:
        seen = (
            cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
            if colour == "Y"
            else (image[..., _CHANNEL[colour]])
        )
        values[rows, columns] = levels.values(colour)[seen[rows, columns]]
    return values


def packed(values: npt.NDArray[Any], form: RawFormat) -> bytes:
    """Pack the values of a picture; the inverse of `unpacked`.

    Args:
        values: u1 or u2 [height, width]; the width is a multiple of `form.group`.
        form: the format to pack to.
    """
    if not form.packed:
        return values.astype("<" + form.pixels.dtype).tobytes()
    low_bits = form.pixels.bits - 8
    groups = values.reshape(-1, form.group).astype("<u4")
    shifts = np.arange(form.group, dtype="<u4") * low_bits
    low = ((groups & ((1 << low_bits) - 1)) << shifts).sum(axis=1, dtype="<u4")
    low_bytes = low[:, None].view(np.uint8)[:, : form.group * low_bits // 8]
    return np.hstack([(groups >> low_bits).astype(np.uint8), low_bytes]).tobytes()


def raw_pictures(
    camera: SimulatedCamera, index: int, form: RawFormat, levels: Levels
) -> dict[str, npt.NDArray[Any]]:
    """Draw, pack and unpack picture `index`; return the data of its sample."""
    values = raw_values(camera.frame(index), levels)
    rows = np.frombuffer(packed(values, form), np.uint8).reshape(len(values), -1)
    return {form.pixels.channel: unpacked(rows, form)[None]}
