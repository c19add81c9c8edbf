"""A redactor that finds the simulated pedestrians from the pixels alone (docs/redaction.md).

``python people.py``: OpenCV and numpy, nothing of the recorder.

The simulation paints a person in three parts, from the top: skin (14 percent of the height),
clothes, trousers (45 percent).  Skin and trousers have one hue each, darker or brighter with the
light.  Each patch of one of them gives a box for the whole person.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

PICTURE, ANSWER = struct.Struct("<4sIIII4sQqQ80s"), struct.Struct("<4sIQII")
SKIN, TROUSERS = (215, 170, 140), (45, 55, 70)  # red, green, blue
SKIN_SHARE, TROUSERS_SHARE = 0.14, 0.45
LIGHT = (0.5, 1.1)
MARGIN_PX = 4


def patches(rgb: npt.NDArray[Any], colour: tuple[int, ...], tolerance: float) -> list[list[int]]:
    """Left, top, width and height of the patches of a colour in any light."""
    pixels, unit = rgb.astype(np.float32), np.array(colour, np.float32)
    light = pixels @ unit / (unit @ unit)
    off = np.abs(pixels - light[..., None] * unit).max(axis=-1)
    found = (off < tolerance) & (light > LIGHT[0]) & (light < LIGHT[1])
    _, _, stats, _ = cv2.connectedComponentsWithStats(found.astype(np.uint8), connectivity=8)
    return [row[:4] for row in stats[1:].tolist() if row[4] >= 4]


def people(rgb: npt.NDArray[Any]) -> list[list[float]]:
    """Boxes x0 y0 x1 y1 of the persons."""
    height, width = rgb.shape[:2]
    boxes = []
    for x, y, w, h in patches(rgb, SKIN, 14):
        boxes.append([x, y, x + w, y + (h + 2) / SKIN_SHARE])
    for x, y, w, h in patches(rgb, TROUSERS, 7):
        if h > 0.5 * w:
            boxes.append([x, y + h - (h + 2) / TROUSERS_SHARE, x + w, y + h])
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
