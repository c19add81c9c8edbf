"""Range and Doppler of a radar's frames as int16, as EdgeFirst's cubes are.

::

    processor = CubeProcessor(geometry, threshold_db=12.0, limit=256)
    found = processor.detect(iq)                   # as RadarProcessor, in a third of the time
    cube, cut = quantized(processor.take(), gain=16.0)
    cube = cropped(cube, ranges=200, doppler=32)
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.processing import radar
from recorder.processing.radar import Detections, Floats, Power, RadarGeometry, RadarProcessor

Cells = npt.NDArray[np.intp]

_TRANSFORM = cv2.DFT_ROWS | cv2.DFT_COMPLEX_OUTPUT
_MOST = 32_767.0
_TINY = 1e-30
_HOPEFUL = 0.8
"""Of the fit of the speed nearest to zero, on the coarse grid of directions, whose steps lose a few
tenths of a dB: another speed with less will not fit better by `radar._ALIAS_GAIN`."""
_LEAK_CELLS = np.arange(2, 13)
_LEAK_SHARES = (10 ** (-2.5 - 6 * np.log10(np.maximum(_LEAK_CELLS, 2.5) / 2.5))).astype(np.float32)


class CubeProcessor(RadarProcessor):
    """Keeps a frame's cube for who asks next; finds what `RadarProcessor` finds.

    Transforms and sums are OpenCV's, and what costs most is asked of cells above the noise alone.
    Of one thread.
    """

    def __init__(
        self, geometry: RadarGeometry, threshold_db: float = 12.0, limit: int = 256
    ) -> None:
        super().__init__(geometry, threshold_db, limit)
        window = np.outer(self._doppler_window, self._range_window) / self._scale
        self._window = window.astype(np.float32)[:, None, :, None]
        self._kept: npt.NDArray[np.complex64] | None = None

    def cube(self, iq: npt.NDArray[np.int16]) -> npt.NDArray[np.complex64]:
        chirps, tx, rx, _ = iq.shape
        order = self.geometry.iq_order
        if order is None:
            self._kept = super().cube(iq)
            return self._kept
        places = [2, 0, 3, 1] if order == "qqii" else [0, 2, 1, 3]
        count = self.geometry.shape[3]
        samples = np.take(iq.reshape(-1, 4), places, axis=1).astype(np.float32)
        samples = samples.reshape(chirps, tx * rx, count, 2)
        samples *= self._window
        spectrum = cv2.dft(samples.reshape(-1, count, 2), flags=_TRANSFORM)
        # Doppler bins lie side by side from here on: [tx, rx, range, doppler].
        turned = spectrum.view(np.complex64).reshape(chirps, tx * rx * count)
        rows = np.ascontiguousarray(turned.T).view(np.float32).reshape(-1, chirps, 2)
        out = cv2.dft(rows, flags=_TRANSFORM).view(np.complex64)
        self._kept = out.reshape(tx, rx, count, chirps).transpose(3, 0, 1, 2)
        return self._kept

    def take(self) -> npt.NDArray[np.complex64]:
        """The cube of the frame that `detect` saw last: complex64 [doppler, tx, rx, range]."""
        assert self._kept is not None
        kept, self._kept = self._kept, None
        return kept

    def detect(self, iq: npt.NDArray[np.int16]) -> Detections:
        cube, geometry = self.cube(iq), self.geometry
        power = mean_power(cube)
        noise = noise_around(power)
        cells = peaks(power, noise * np.float32(self._threshold))
        strength = power[cells[:, 0], cells[:, 1]]
        cells = cells[np.argsort(-strength, kind="stable")[: self.limit]]
        doppler, ranges = cells[:, 0], cells[:, 1]
        strength = power[doppler, ranges]
        chirps = len(power)
        at = doppler + radar._vertex(power, cells, 0, wrap=True)
        velocity = np.where(at >= chirps / 2, at - chirps, at) * geometry.doppler_resolution
        direction = np.tile([1.0, 0.0, 0.0], (len(cells), 1))
        if self._array is not None and len(cells):
            signal = cube[doppler, :, :, ranges] * self._turn_back[:, None]
            velocity, direction = self._resolve(signal, velocity)
        distance = ranges + radar._vertex(power, cells, 1, wrap=False)
        distance = distance * geometry.range_resolution - velocity * geometry.coupling_s
        return Detections(
            np.maximum(distance, 0.0).astype(np.float32),
            velocity.astype(np.float32),
            (10 * np.log10(strength)).astype(np.float32),
            (10 * np.log10(strength / noise[doppler, ranges])).astype(np.float32),
            radar._unit32(direction),
        )

    def _resolve(
        self, signal: npt.NDArray[np.complex64], velocity: Floats
    ) -> tuple[Floats, Floats]:
        """As the base class, without looking closer at multiples that cannot fit best."""
        assert self._array is not None
        count, tx = signal.shape[:2]
        turns = np.repeat(np.arange(tx)[:, None], count, axis=1)
        turns = np.where(turns > tx / 2, turns - tx, turns)
        if tx % 2 == 0:
            half = turns == tx // 2
            turns = np.where(half & (velocity > 0), -turns, turns)
        speeds = velocity + turns * 2 * self.geometry.max_velocity  # [tx, n]
        phase = -4 * np.pi / self.geometry.wavelength * speeds[..., None] * self._late_s
        turned = (signal * np.exp(1j * phase)[..., None]).astype(np.complex64)
        flat = turned.reshape(tx * count, -1)
        rough = np.abs(flat @ self._array._steering.T).max(axis=1).reshape(tx, count) ** 2
        near = rough > _HOPEFUL * rough[0]
        fitted, direction = np.full((tx, count), -1.0), np.zeros((tx, count, 3))
        fitted[near], direction[near] = self._array.match(turned[near])
        best, chosen = fitted[0].copy(), np.zeros(count, np.intp)
        for number in range(1, tx):
            better = fitted[number] > best * radar._ALIAS_GAIN
            best = np.where(better, fitted[number], best)
            chosen[better] = number
        at = np.arange(count)
        return speeds[chosen, at], direction[chosen, at]


def mean_power(cube: npt.NDArray[np.complex64]) -> Power:
    """Power over all antennas, f4 [doppler, range], of a cube [doppler, tx, rx, range]."""
    values = cube.transpose(1, 2, 3, 0)
    if not values.flags.c_contiguous:
        return np.asarray((cube.real**2 + cube.imag**2).mean(axis=(1, 2)))
    tx, rx, ranges, chirps = values.shape
    parts = values.view(np.float32).reshape(tx * rx, ranges * chirps * 2)
    squares = np.einsum("ai,ai->i", parts, parts).reshape(ranges, chirps, 2)
    total = (squares[..., 0] + squares[..., 1]) * np.float32(1 / (tx * rx))
    return np.ascontiguousarray(total.T)


def noise_around(power: Power) -> Power:
    """`radar.noise_around`, with sums by OpenCV."""
    doppler, ranges = power.shape
    (guard, train), (guard_d, train_d) = ((radar.GUARD[axis], radar.TRAIN[axis]) for axis in (0, 1))
    outer = min(guard_d + train_d, (doppler - 1) // 2)
    reach = ((outer, guard + train), (min(guard_d, max(0, outer - 1)), guard))
    level = np.log(np.maximum(power, _TINY))
    wrapped = np.concatenate([level[doppler - outer :], level, level[:outer]])
    sums, counts = [], []
    for up, along in reach:
        size = (2 * along + 1, 2 * up + 1)
        boxed = cv2.boxFilter(
            wrapped, cv2.CV_64F, size, normalize=False, borderType=cv2.BORDER_CONSTANT
        )
        sums.append(boxed[outer : outer + doppler])
        low = np.maximum(np.arange(ranges) - along, 0)
        high = np.minimum(np.arange(ranges) + along + 1, ranges)
        counts.append((high - low) * (2 * up + 1))
    around = np.maximum(counts[0] - counts[1], 1)
    return np.asarray(np.exp((sums[0] - sums[1]) / around).astype(np.float32))


def peaks(power: Power, threshold: Power) -> Cells:
    """`radar.peaks` above the threshold and above `radar.leakage`."""
    doppler, ranges = power.shape
    good = power > threshold
    good[:, 0] = False
    cells = np.argwhere(good)
    for along, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
        row, column = cells.T
        here = power[row, column]
        if along == 0:
            other = power[(row - step) % doppler, column]
        else:
            beside = column - step
            inside = (beside >= 0) & (beside < ranges)
            other = np.where(inside, power[row, np.clip(beside, 0, ranges - 1)], 0.0)
        cells = cells[(here > other) if step == 1 else (here >= other)]
    row, column = cells[:, :1], cells[:, 1:]
    here = power[cells[:, 0], cells[:, 1]]
    for size, along in ((doppler, 0), (ranges, 1)):
        far = size > 2 * _LEAK_CELLS
        steps, shares = _LEAK_CELLS[far], _LEAK_SHARES[far]
        for sign in (1, -1):
            if along == 0:
                leaked = power[(row - sign * steps) % doppler, column]
            else:
                beside = column - sign * steps
                inside = (beside >= 0) & (beside < ranges)
                leaked = np.where(inside, power[row, np.clip(beside, 0, ranges - 1)], 0.0)
            here = np.where((leaked * shares >= here[:, None]).any(axis=1), -1.0, here)
    found: Cells = cells[here >= 0]
    return found


def quantized(cube: npt.NDArray[np.complex64], gain: float) -> tuple[npt.NDArray[np.int16], int]:
    """A cube of the processor as int16, and how many values were cut.

    Args:
        cube: complex64 [doppler, tx, rx, range]; Doppler bins begin at 0 and wrap round.
        gain: values of the result per step of the converter.

    Returns:
        int16 [tx, rx, range, doppler, 2], real and imaginary part, rounded; Doppler bins rise, 0
        stands at doppler // 2.
    """
    chirps = cube.shape[0]
    values: npt.NDArray[Any] = np.ascontiguousarray(cube.transpose(1, 2, 3, 0)).view(np.float32)
    values = values.reshape(*values.shape[:-1], chirps, 2)
    half = chirps - chirps // 2  # as fftshift has it
    out = np.empty(values.shape, np.int16)
    cut = 0
    for source, target in (
        (values[..., half:, :], out[..., : chirps - half, :]),
        (values[..., :half, :], out[..., chirps - half :, :]),
    ):
        scaled = np.rint(source * np.float32(gain))
        if scaled.size and max(scaled.max(), -scaled.min()) > _MOST:
            cut += int(np.count_nonzero(np.abs(scaled) > _MOST))
            np.clip(scaled, -_MOST, _MOST, out=scaled)
        target[...] = scaled
    return out, cut


def cropped(cube: npt.NDArray[np.int16], ranges: int, doppler: int) -> npt.NDArray[np.int16]:
    """The first range bins, and the Doppler bins around 0; a bound of 0 leaves all.

    Args:
        cube: int16 [tx, rx, range, doppler, 2], from `quantized`.
        ranges: range bins that stay.
        doppler: Doppler bins that stay; 0 m/s stands at doppler // 2 again.
    """
    if ranges:
        cube = cube[:, :, :ranges]
    have = cube.shape[3]
    if doppler and doppler < have:
        first = have // 2 - doppler // 2
        cube = cube[:, :, :, first : first + doppler]
    return cube
