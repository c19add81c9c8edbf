"""A camera without hardware: pictures of the simulated world, identical for the same seed.

Each picture contains its own number twice: in digits for people, with its time below, and as a
strip of 32 dark and bright blocks that survives JPEG from a width of 160 on, where a block is four
pixels wide.  A recording can be checked with it for missing or repeated frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.camera.backdrop import BONNET_COLOUR, Backdrop, bonnet, brighten, palette
from drivers.camera.faults import CameraFaults
from drivers.camera.lens import DISTORTION, Lens
from drivers.camera.outlines import SHIFT, Outlines
from drivers.kit.simulated_clock import CLOCK_OPTION
from drivers.world import SEED_OPTION, WORLD_OPTIONS, World, mounts
from drivers.world.faults import CAMERA_FAULTS, Fault, fault_option, read_faults
from drivers.world.noise import bits, noise_seed, normal
from recorder.common.errors import SourceError
from recorder.config.options import Option, OptionTable

Image = npt.NDArray[np.uint8]

SIM_SIZE: Final = 1280, 720
SIM_FPS: Final = 30.0

SIM_CAMERA_OPTIONS: Final[OptionTable] = {
    **WORLD_OPTIONS,
    "clock": CLOCK_OPTION,
    "seed": SEED_OPTION,
    "noise": Option("float", 0.0, "sim: scale of the pixels' noise", minimum=0.0, maximum=20.0),
    "faults": fault_option(CAMERA_FAULTS),
    "mount": mounts.MOUNT_OPTION,
    "focal_px": Option(
        "float", None, "sim: focal length in pixels (default: 0.75 of the longer side)", minimum=1.0
    ),
    "distortion": Option("list", None, "sim: k1, k2, p1, p2, k3 as in OpenCV", items="float"),
    "readout_ms": Option(
        "float",
        0.0,
        "sim, live: readout of the rolling shutter, from first to last row [ms]",
        minimum=0.0,
        maximum=100.0,
    ),
    "exposure_ms": Option(
        "float",
        0.0,
        "exposure time [ms]; sim: blurs motion; live: if the device does not report it",
        minimum=0.0,
        maximum=1000.0,
    ),
    "gain": Option("float", 1.0, "sim: brightness", minimum=0.0, maximum=16.0),
}

BLUR_INSTANTS = 4
"""Number of pictures whose mean is a long exposure."""

_NOISE_SIGMA = 1.5
_NOISE_SPARE = 1 << 16
_STRIP_BITS = 32
_DARK, _BRIGHT = 16, 235
_DIGITS = (  # 3 columns by 5 rows, one number per row, the left column in the highest bit
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
    (0, 0, 0, 0, 2),
)
_POINT = 10


class SimulatedCamera:
    """Source of an endless sequence's picture `k`, in any order, without state.

    Picture k ends at world time k / fps, when its last row is read out.  With a rolling shutter,
    row v of `height` is taken ``readout_s * (height - 1 - v) / height`` earlier; an exposure begins
    `exposure_s` before that.

    >>> camera = SimulatedCamera(World("drive", seed=0), Lens.default(320, 240))
    >>> image = camera.frame(17)        # uint8 [240, 320, 3], BGR; the caller may keep it

    Args:
        world: the world.
        lens: the projection; its size is the picture's size.
        mount: the camera's place; z forward, x right, y down.
        fps: pictures per second.
        readout_s: of the rolling shutter, from first to last row; 0: all rows at once.
        exposure_s: duration that blurs moving objects; 0: no blur.
        gain: brightness, 1 is normal.
        noise: scale of the pixels' noise; 0: no noise.
        seed: of the noise; default: the world's.
        faults: of the kinds of `drivers.camera.faults`.
        prepared: make the ground and the sky now, else with the first picture: labels need none.
    """

    def __init__(
        self,
        world: World,
        lens: Lens,
        mount: mounts.Mount = mounts.CAMERA,
        fps: float = 30.0,
        readout_s: float = 0.0,
        exposure_s: float = 0.0,
        gain: float = 1.0,
        noise: float = 0.0,
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        prepared: bool = True,
    ) -> None:
        self.lens = lens
        self.fps = fps
        self._readout_s = readout_s
        self._exposure_s = exposure_s
        self._gain = gain
        self._palette = palette(gain)[:, None]
        self._seed = world.seed if seed is None else seed
        self.outlines = Outlines(world, lens, mount, readout_s)  # rejects an invalid lens
        self._world, self._mount = world, mount
        self._faults = CameraFaults(faults, self._seed, (lens.width, lens.height), fps)
        self.bonnet = bonnet(lens, mount)
        self._glyphs = _glyphs(max(1, lens.height // 180))
        self._noise = _noise(self._seed, noise, 3 * lens.width * lens.height) if noise else None
        if prepared:
            _ = self._backdrop

    @cached_property
    def _backdrop(self) -> Backdrop:
        return Backdrop(self._world, self.lens, self._mount)

    def frame(self, index: int, without: frozenset[int] = frozenset()) -> Image:
        """Return picture `index` (from 0) as a new array: uint8 [height, width, 3], BGR.

        Args:
            index: its number.
            without: numbers of targets (in `World.targets`) that are omitted.
        """
        index = self._faults.shown(index)
        image = self._faults.picture(index, partial(self._expose, without=without))
        if self._noise is not None:
            self._add_noise(image, index)
        self._number(image, index)
        return image

    def _expose(self, index: int, without: frozenset[int]) -> Image:
        """Return picture `index` without faults, noise and number, as a new array."""
        t_s = index / self.fps
        if not self._exposure_s:
            return self._instant(t_s, without)
        total = np.zeros((self.lens.height, self.lens.width, 3), np.uint16)
        for k in range(BLUR_INSTANTS):
            share = (k + 0.5) / BLUR_INSTANTS
            total += self._instant(t_s - share * self._exposure_s, without)
        return ((total + BLUR_INSTANTS // 2) // BLUR_INSTANTS).astype(np.uint8)

    def _instant(self, t_s: float, without: frozenset[int]) -> Image:
        import cv2

        height = self.lens.height
        times = np.array([t_s])
        if self._readout_s:
            times = t_s - self._readout_s * (height - 1 - np.arange(height)) / height
        image = cv2.applyColorMap(self._backdrop.codes(times), self._palette)
        for polygon in self.outlines.at(t_s, without):
            colour = polygon.colour if self._gain == 1.0 else brighten(polygon.colour, self._gain)
            cv2.fillConvexPoly(image, polygon.points, colour, cv2.LINE_8, SHIFT)
        if len(self.bonnet):
            colour = brighten(BONNET_COLOUR, self._gain)
            cv2.fillPoly(image, [self.bonnet], colour, cv2.LINE_8, SHIFT)
        return np.asarray(image, np.uint8)

    def _add_noise(self, image: Image, index: int) -> None:
        import cv2

        assert self._noise is not None
        shift = int(bits(self._seed, "shift", index, 1)[0]) % _NOISE_SPARE
        noise = self._noise[:, shift : shift + image.size].reshape(2, *image.shape)
        cv2.add(image, noise[0], image)
        cv2.subtract(image, noise[1], image)

    def _number(self, image: Image, index: int) -> None:
        block = strip_block_px(self.lens.width)
        bits = (index >> np.arange(_STRIP_BITS)) & 1
        levels = np.where(bits, _BRIGHT, _DARK).astype(np.uint8)
        image[:block, : _STRIP_BITS * block] = np.repeat(levels, block)[:, None]
        milliseconds = round(index * 1000 / self.fps)
        self._write(image, 2 * block, str(index))
        text = f"{milliseconds // 1000}.{milliseconds % 1000:03d}"
        self._write(image, 2 * block + self._glyphs.shape[1], text)

    def _write(self, image: Image, top: int, text: str) -> None:
        rows, columns = self._glyphs.shape[1:]
        for place, letter in enumerate(text):
            left = strip_block_px(self.lens.width) + place * columns
            target = image[top : top + rows, left : left + columns]
            glyph = self._glyphs[_POINT if letter == "." else int(letter)]
            target[...] = glyph[: target.shape[0], : target.shape[1], None]


def strip_block_px(width: int) -> int:
    """Return the side of one block of the number strip, in pixels."""
    return max(1, width // 40)


def _noise(seed: int, scale: float, values: int) -> npt.NDArray[np.uint8]:
    """Return the amounts to add to and subtract from pixels, u1 [2, values + _NOISE_SPARE]."""
    sigma = scale * _NOISE_SIGMA
    noise = np.rint(sigma * normal(seed, "pixels", 0, values + _NOISE_SPARE))
    return np.stack([np.clip(noise, 0, 255), np.clip(-noise, 0, 255)]).astype(np.uint8)


def _glyphs(scale: int) -> Image:
    """Return digits and a point, uint8 [11, 7 * scale, 5 * scale]: bright on dark, with margin."""
    bits = np.array(_DIGITS, np.uint8)[..., None] >> np.array([2, 1, 0], np.uint8) & 1
    cells = np.pad(bits, ((0, 0), (1, 1), (1, 1)))
    levels = np.where(cells, _BRIGHT, _DARK).astype(np.uint8)
    return levels.repeat(scale, axis=1).repeat(scale, axis=2)


def make_camera(
    name: str,
    options: Mapping[str, Any],
    size: tuple[int, int],
    fps: float,
    world: World | None = None,
    *,
    prepared: bool = True,
) -> SimulatedCamera:
    """Make the camera that a sensor's checked options describe.

    Args:
        name: the sensor's name, for messages.
        options: see `SIM_CAMERA_OPTIONS`.
        size: (width, height) in pixels.
        fps: pictures per second.
        world: the world, if it already exists.
        prepared: see `SimulatedCamera`.

    Raises:
        ConfigError: an invalid fault.
        SourceError: an invalid mount or distortion; the message names sensor and option.
    """
    lens = make_lens(name, options, size)
    try:
        return SimulatedCamera(
            world or World.of(options),
            lens,
            mounts.make_mount(name, options["mount"], mounts.CAMERA),
            fps=fps,
            readout_s=options["readout_ms"] / 1e3,
            exposure_s=options["exposure_ms"] / 1e3,
            gain=options["gain"],
            noise=options["noise"],
            seed=noise_seed(options["seed"], name, "camera"),
            faults=read_faults(name, options, CAMERA_FAULTS),
            prepared=prepared,
        )
    except ValueError as error:
        raise SourceError(f"{name}: distortion: {error}") from None


def make_lens(name: str, options: Mapping[str, Any], size: tuple[int, int]) -> Lens:
    """Make the lens of a sensor's options; SourceError for a wrong number of terms."""
    terms = options["distortion"]
    if terms is None:
        return Lens.default(*size, options["focal_px"])
    if len(terms) != len(DISTORTION):
        raise SourceError(f"{name}: distortion: {len(terms)} numbers instead of {len(DISTORTION)}")
    k1, k2, p1, p2, k3 = (float(term) for term in terms)
    return Lens.default(*size, options["focal_px"], (k1, k2, p1, p2, k3))
