"""A redactor that finds the simulated pedestrians from the pixels alone (docs/redaction.md).

``python people.py``: OpenCV and numpy, nothing of the recorder.

The simulation paints the uppermost 14 percent of a person as skin, of one hue, darker or brighter
with the light.  Each wide patch of it gives a box for the whole person.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

PICTURE, ANSWER = struct.Struct("<4sIIII4sQqQ80s"), struct.Struct("<4sIQII")
SKIN, SKIN_SHARE = (215, 170, 140), 0.14  # red, green, blue; of the height
LIGHT = (0.5, 1.1)
MARGIN_PX = 8


def patches(rgb: npt.NDArray[Any], colour: tuple[int, ...], tolerance: float) -> list[list[int]]:
    """Left, top, width and height of the compact patches of a colour in any light."""
    pixels, unit = rgb.astype(np.float32), np.array(colour, np.float32)
    light = pixels @ unit / (unit @ unit)
    off = np.abs(pixels - light[..., None] * unit).max(axis=-1)
    found = (off < tolerance) & (light > LIGHT[0]) & (light < LIGHT[1])
    _, _, stats, _ = cv2.connectedComponentsWithStats(found.astype(np.uint8), connectivity=8)
    return [row[:4] for row in stats[1:].tolist() if row[4] >= max(4, 0.5 * row[2] * row[3])]


def people(rgb: npt.NDArray[Any]) -> list[list[float]]:
    """Boxes x0 y0 x1 y1 of the persons."""
    height, width = rgb.shape[:2]
    boxes = []
    for tolerance in (4, 6, 9):  # walls behind a person may be nearly of this hue
        for x, y, w, h in patches(rgb, SKIN, tolerance):
            if h <= w < 6 * h and h < 0.1 * height:
                boxes.append([x - w / 4, y, x + w * 5 / 4, y + (h + 2) / SKIN_SHARE])
    grown = []
    for x0, y0, x1, y1 in boxes:
        box = [x0 - MARGIN_PX, y0 - MARGIN_PX, x1 + MARGIN_PX, y1 + MARGIN_PX]
        grown.append([max(0, box[0]), max(0, box[1]), min(width, box[2]), min(height, box[3])])
    return grown


def main() -> None:
    """Answer pictures until there are no more."""
    while head := sys.stdin.buffer.read(PICTURE.size):
        _, _, width, height, channels, _, number, _, size, _ = PICTURE.unpack(head)
        data = np.frombuffer(sys.stdin.buffer.read(size), np.uint8)
        boxes = np.array(people(data.reshape(height, width, channels)), "<f4").reshape(-1, 4)
        sys.stdout.buffer.write(ANSWER.pack(b"RBOX", 1, number, *boxes.shape) + boxes.tobytes())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
