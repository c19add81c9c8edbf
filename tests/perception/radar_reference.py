"""The radar's processing written plainly, in double precision: what the fast one has to equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.perception.radar.radar import Detections, RadarGeometry

Floats = npt.NDArray[np.float64]
GUARD, TRAIN = (3, 3), (8, 4)  # cells of range, of Doppler
SURE, SPARE_DB, SECOND_WAVE = 4.0, 0.3, 0.15
TINY = 1e-30


def samples_of(iq: npt.NDArray[np.int16], order: str | None) -> npt.NDArray[Any]:
    """Two values of I beside two of Q."""
    if order is None:
        return iq.astype(np.float64)
    pairs = iq.reshape(*iq.shape[:-1], -1, 2, 2).astype(np.float64)
    first, second = pairs[..., 0, :], pairs[..., 1, :]
    real, imaginary = (second, first) if order == "qqii" else (first, second)
    return np.asarray(real + 1j * imaginary).reshape(*iq.shape[:-1], -1)


def cube_of(iq: npt.NDArray[np.int16], geometry: RadarGeometry) -> npt.NDArray[np.complex128]:
    """complex [doppler, tx, rx, range]."""
    chirps, _, _, count = geometry.shape
    along, over = np.hanning(count + 2)[1:-1], np.hanning(chirps + 2)[1:-1]
    values = samples_of(iq, geometry.iq_order) * along
    spectrum = np.fft.fft(values, axis=-1)[..., : geometry.ranges]
    if geometry.iq_order is None:
        spectrum *= 2  # the other half has as much
    spectrum = np.fft.fft(spectrum * over[:, None, None, None], axis=0)
    return np.asarray(spectrum / (along.sum() * over.sum()))


def noise_around(power: Floats) -> Floats:
    """Neighbour by neighbour."""
    outer = min(GUARD[1] + TRAIN[1], (len(power) - 1) // 2), GUARD[0] + TRAIN[0]
    inner = min(GUARD[1], max(0, outer[0] - 1)), GUARD[0]
    level = np.log(np.maximum(power, TINY))
    total, count = np.zeros_like(power), np.zeros_like(power)
    for up in range(-outer[0], outer[0] + 1):
        for along in range(-outer[1], outer[1] + 1):
            if abs(up) > inner[0] or abs(along) > inner[1]:
                for values, into in ((level, total), (np.ones_like(level), count)):
                    into += _shifted(_shifted(values, 0, up), 1, along)
    return np.exp(total / np.maximum(count, 1))


def leakage(power: Floats) -> Floats:
    """What cells put into others of their range or Doppler, at most."""
    most = np.zeros_like(power)
    for cells in range(2, 13):
        share = 10 ** (-2.5 - 6 * np.log10(max(cells, 2.5) / 2.5))
        for axis in (0, 1):
            if 2 * cells >= power.shape[axis]:
                continue
            for step in (cells, -cells):
                most = np.maximum(most, _shifted(power, axis, step) * share)
    return most


def peaks(power: Floats, threshold: Floats) -> npt.NDArray[np.intp]:
    """Cells above the threshold that no neighbour exceeds."""
    good = power > threshold
    good[:, 0] = False
    for axis in (0, 1):
        good &= (power > _shifted(power, axis, 1)) & (power >= _shifted(power, axis, -1))
    return np.argwhere(good)


def _shifted(power: Floats, axis: int, step: int) -> Floats:
    other = np.roll(power, step, axis=axis)
    if axis == 1 and step:  # beyond the ends of the range is nothing
        other[:, slice(0, step) if step > 0 else slice(step, None)] = 0.0
    return other


def detections_of(
    iq: npt.NDArray[np.int16], geometry: RadarGeometry, threshold_db: float = 12.0
) -> Detections:
    """All of them, the strongest first."""
    cube = cube_of(iq, geometry)
    power = np.asarray((np.abs(cube) ** 2).mean(axis=(1, 2)))
    noise = noise_around(power)
    cells = peaks(power, np.maximum(noise * 10 ** (threshold_db / 10), leakage(power)))
    cells = cells[np.argsort(-power[tuple(cells.T)], kind="stable")]
    found = [_detection(cell.tolist(), cube, power, noise, geometry) for cell in cells]
    strength = power[tuple(cells.T)]
    tx = geometry.shape[1] if geometry.tx_m is not None else 1
    rows = np.array([row[0] for row in found], np.float64).reshape(-1, 8).astype(np.float32)
    fits = np.array([row[1] for row in found], np.float64).reshape(-1, tx).astype(np.float32)
    views = np.array([row[2] for row in found], np.float64).reshape(-1, tx, 3).astype(np.float32)
    return Detections(
        rows[:, 0],
        rows[:, 1],
        (10 * np.log10(strength)).astype(np.float32),
        (10 * np.log10(strength / noise[tuple(cells.T)])).astype(np.float32),
        rows[:, 2:5],
        rows[:, 5],
        rows[:, 6].astype(np.uint8),
        rows[:, 7].astype(np.int16),
        views,
        fits,
    )


def _detection(
    cell: list[int],
    cube: npt.NDArray[np.complex128],
    power: Floats,
    noise: Floats,
    geometry: RadarGeometry,
) -> tuple[list[float], list[float], list[Floats]]:
    """Range, velocity, direction, margin, method, turns; fits and directions of all multiples."""
    doppler, column = cell
    chirps, ranges = power.shape
    around = [power[(doppler + step) % chirps, column] for step in (-1, 0, 1)]
    at = doppler + _vertex(around)
    velocity = (at - chirps if at >= chirps / 2 else at) * geometry.doppler_resolution
    turns, method, margin = 0, 0, 0.0
    fits, views = [0.0], [np.array([1.0, 0.0, 0.0])]
    chosen = 0
    if geometry.tx_m is not None:
        signal = cube[doppler, :, :, column] * np.exp(-2j * np.pi * geometry.tx_turns)[:, None]
        if geometry.calibration is not None:
            signal = signal * geometry.calibration.coefficients
        candidates, fits, views = _fits(signal, velocity, geometry)
        if geometry.calibration is not None and len(fits) > 1:
            best = int(np.argmax(fits))
            second = max(fits[:best] + fits[best + 1 :])
            snr = power[doppler, column] / noise[doppler, column]
            error = signal.shape[1] * np.radians(geometry.calibration.residual_deg) ** 2 + 1 / snr
            lead = 1 - 10 ** ((second - fits[best]) / 10)
            whole = signal.size * float((np.abs(signal) ** 2).sum())
            unexplained = 1 - 10 ** (fits[best] / 10) / whole
            if (
                lead >= 2 * SURE**2 * error / signal.size
                and fits[best] - second >= SPARE_DB
                and unexplained <= SECOND_WAVE + min(error, 0.1)
            ):
                chosen, turns, method = best, candidates[best], 1
        if len(fits) > 1:
            margin = fits[chosen] - max(fits[:chosen] + fits[chosen + 1 :])
    velocity += turns * 2 * geometry.max_velocity
    place = float(column)
    if 0 < column < ranges - 1:
        place += _vertex([power[doppler, column + step] for step in (-1, 0, 1)])
    distance = place * geometry.range_resolution - velocity * geometry.coupling_s
    if geometry.calibration is not None:
        distance -= geometry.calibration.range_bias_m
    row = [max(distance, 0.0), velocity, *views[chosen], margin, float(method), float(turns)]
    return row, fits, views


def _vertex(values: list[float]) -> float:
    before, middle, after = np.log(np.maximum(values, TINY))
    curve = before - 2 * middle + after
    return float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5)) if curve < 0 else 0.0


def _fits(
    signal: npt.NDArray[np.complex128], velocity: float, geometry: RadarGeometry
) -> tuple[list[int], list[float], list[Floats]]:
    """Every multiple, how well it fits in dB, and its direction."""
    tx = len(signal)
    candidates, fits, views = [], [], []
    for number in range(tx):
        turns = number - tx if number > tx / 2 else number
        if 2 * number == tx and velocity > 0:
            turns = -turns
        speed = velocity + turns * 2 * geometry.max_velocity
        late_s = np.arange(tx) * geometry.chirp_time / tx
        phase = np.exp(-4j * np.pi / geometry.wavelength * speed * late_s)
        fitted, direction = _matched((signal * phase[:, None]).reshape(-1), geometry)
        candidates.append(turns)
        fits.append(10 * float(np.log10(max(fitted, TINY))))
        views.append(direction)
    return candidates, fits, views


def _matched(signal: npt.NDArray[np.complex128], geometry: RadarGeometry) -> tuple[float, Floats]:
    """The best of a grid, then uphill with steps that become smaller."""
    assert geometry.tx_m is not None
    assert geometry.rx_m is not None
    places = (geometry.tx_m[:, None] + geometry.rx_m[None]).reshape(-1, 3)
    _, wide, high = (places.max(axis=0) - places.min(axis=0)) / geometry.wavelength
    level = high < 1e-6
    sideways = _sines(wide)
    azimuth, elevation = np.radians(geometry.view_deg)
    up = np.zeros(1) if level else _sines(high) * np.sin(elevation)

    def fit(sines: Floats) -> float:
        left, above = sines
        if sines @ sines > 1 or abs(above) > np.sin(elevation) + 1e-9:
            return -1.0
        if left * left > (1 - above * above) * np.sin(azimuth) ** 2 + 1e-9:
            return -1.0
        unit = np.array([np.sqrt(1 - sines @ sines), *sines])
        turned = np.exp(2j * np.pi / geometry.wavelength * (places @ unit))
        return float(np.abs(turned @ signal))

    grid = np.stack(np.meshgrid(sideways, up, indexing="ij"), axis=-1).reshape(-1, 2)
    grid = grid[np.sum(grid * grid, axis=1) <= 0.999]
    sines = grid[np.argmax([fit(point) for point in grid])]
    step = np.array([sideways[1] - sideways[0], 0.0 if level else up[1] - up[0]])
    for _ in range(6):
        step = step / 2
        ways = [(a, b) for a in (-1, 0, 1) for b in ((0,) if level else (-1, 0, 1))]
        around = sines + np.array(ways) * step
        sines = around[np.argmax([fit(point) for point in around])]
    return fit(sines) ** 2, np.array([np.sqrt(1 - sines @ sines), *sines])


def _sines(extent: float) -> Floats:
    return np.linspace(-1, 1, 2 * max(4, int(np.ceil(4 * extent))) + 1)
