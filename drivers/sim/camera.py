"""A camera that needs no hardware: a moving picture, the same for the same seed.

Each picture carries its own number twice: in digits for people, and as a strip of 32 dark and
bright blocks that survives JPEG, so that a recording can be checked for missing or repeated
frames (`read_frame_number`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]

SCROLL_PX = 3  # per frame, of the background
BAR_PX = 7  # per frame, of the bright bar
_STRIP_BITS = 32
_DARK, _BRIGHT = 16, 235
_DIGITS = (  # 3 columns by 5 rows, one row a number, the left column in the highest bit
    (7, 5, 5, 5, 7),
    (2, 6, 2, 2, 7),
    (7, 1, 7, 4, 7),
    (7, 1, 7, 1, 7),
    (5, 5, 7, 1, 1),
    (7, 4, 7, 1, 7),
    (7, 4, 7, 5, 7),
    (7, 1, 1, 2, 2),
    (7, 5, 7, 5, 7),
    (7, 5, 7, 1, 7),
)


class SimulatedCamera:
    """Draws picture `k` of an endless sequence; any `k` at any time, without state.

    A textured gradient scrolls, a bar sweeps over it and a box bounces around.  All that does not
    change is drawn once, so that a picture costs little more than a copy.

    >>> camera = SimulatedCamera(320, 240, seed=0)
    >>> image = camera.frame(17)        # uint8 [240, 320, 3], BGR; the caller may keep it
    >>> read_frame_number(image)
    17

    Args:
        width, height: of the picture in pixels, 32 at least.
        seed: of colours, texture and the box's path.
    """

    def __init__(self, width: int, height: int, seed: int = 0) -> None:
        self.width = width
        self.height = height
        rng = np.random.default_rng(seed)
        self._background = _background(width, height, rng)
        self._box_colour = rng.integers(0, 256, 3, dtype=np.uint8)
        self._box_size = max(4, height // 6), max(4, width // 8)
        self._box_speed = rng.integers(3, 9, 2)
        self._glyphs = _glyphs(max(1, height // 72))

    def frame(self, index: int) -> Image:
        """Picture `index` (0 and up): uint8 [height, width, 3], BGR, newly made."""
        offset = index * SCROLL_PX % self.width
        image = self._background[:, offset : offset + self.width].copy()
        bar = index * BAR_PX % self.width
        image[:, bar : bar + max(2, self.width // 64)] = _BRIGHT
        rows, columns = self._box_size
        top = _bounce(index * int(self._box_speed[0]), self.height - rows)
        left = _bounce(index * int(self._box_speed[1]), self.width - columns)
        image[top : top + rows, left : left + columns] = self._box_colour
        self._number(image, index)
        return image

    def _number(self, image: Image, index: int) -> None:
        block = strip_block_px(self.width)
        bits = (index >> np.arange(_STRIP_BITS)) & 1
        levels = np.where(bits, _BRIGHT, _DARK).astype(np.uint8)
        image[:block, : _STRIP_BITS * block] = np.repeat(levels, block)[:, None]
        rows, columns = self._glyphs.shape[1:]
        for place, digit in enumerate(str(index)):
            left = block + place * columns
            target = image[2 * block : 2 * block + rows, left : left + columns]
            target[...] = self._glyphs[int(digit), : target.shape[0], : target.shape[1], None]


def strip_block_px(width: int) -> int:
    """Side of one block of the number strip, in pixels."""
    return max(1, width // 40)


def read_frame_number(image: Image) -> int:
    """The number (modulo 2^32) in a picture's strip, uint8 [height, width, 3].

    Survives JPEG from a width of 160 on, where a block is four pixels wide.
    """
    block = strip_block_px(image.shape[1])
    strip = image[:block, : _STRIP_BITS * block].mean(axis=(0, 2))
    levels = strip.reshape(_STRIP_BITS, block).mean(axis=1)
    return int(sum(1 << bit for bit in np.flatnonzero(levels > 128).tolist()))


def _background(width: int, height: int, rng: np.random.Generator) -> Image:
    """Two copies side by side, [height, 2 * width, 3]: any scroll offset is then one slice."""
    # A triangle wave along the row: its ends meet, so that scrolling shows no seam.
    across = np.abs(np.arange(width) * 2 / width - 1)[None, :, None]
    down = np.linspace(0, 1, height)[:, None, None]
    low, high = rng.uniform(30, 90, 3), rng.uniform(130, 220, 3)
    texture = rng.integers(-6, 7, (height, width, 1))
    picture = low + (high - low) * (0.6 * across + 0.4 * down) + texture
    return np.tile(np.clip(picture, 0, 255).astype(np.uint8), (1, 2, 1))


def _glyphs(scale: int) -> Image:
    """Digits 0 to 9, uint8 [10, 7 * scale, 5 * scale]: bright on dark, with a margin of one."""
    bits = np.array(_DIGITS, np.uint8)[..., None] >> np.array([2, 1, 0], np.uint8) & 1
    cells = np.pad(bits, ((0, 0), (1, 1), (1, 1)))
    levels = np.where(cells, _BRIGHT, _DARK).astype(np.uint8)
    return levels.repeat(scale, axis=1).repeat(scale, axis=2)


def _bounce(distance: int, room: int) -> int:
    """A position in 0..room that runs to and fro."""
    if room <= 0:
        return 0
    place = distance % (2 * room)
    return min(place, 2 * room - place)
