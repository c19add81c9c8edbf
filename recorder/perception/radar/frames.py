"""Detections of a stream's frames, each with its speed resolved where the data decide it.

::

    frames = RadarFrames(processor, read, stream.t_ns)
    found = frames.resolved(12)          # the frames 10 to 14 are read for it, if they are needed
    frames.remarks()                     # notes for people

A speed is resolved over the calibrated array (`radar_array.decided`), else by the range in the
frames around (`radar_range_rate`), else it is the one nearest to zero and marked as ambiguous.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import RecorderError
from recorder.perception.radar.geometry import Floats
from recorder.perception.radar.radar import Detections, RadarProcessor, SpeedMethod
from recorder.perception.radar.range_rate import FASTEST_M_S, REACH, resolve_by_range_rate
from recorder.perception.radar.spectra import Complex64, to_pairs

Samples = npt.NDArray[np.int16]
Times = npt.NDArray[np.int64]

BATCH: Final = 8
"""Number of frames whose detections are found together, which costs less than one by one."""
_KEPT: Final = 64  # frames whose detections are kept in memory


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    found: Detections | None = None


class RadarFrames:
    """The resolved detections of one stream.  Safe for several threads.

    Args:
        processor: finds the detections of a frame.
        read: reads a frame's samples, int16 [chirps, tx, rx, values]; several threads call it.
        t_ns: int64 [frames], the frames' times.

    Attributes:
        processor: as given.
    """

    def __init__(
        self, processor: RadarProcessor, read: Callable[[int], Samples], t_ns: Times
    ) -> None:
        self.processor, self._read = processor, read
        self._times_s: Floats = (t_ns - t_ns[:1]).astype(np.float64) * 1e-9
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._steps: dict[int, int] = {}

    def spectra(self, index: int, iq: Samples) -> Complex64:
        """Return the spectra of a frame, for `find`; also check whether the frame is misaligned.

        Args:
            index: of the frame.
            iq: the frame's samples.
        """
        if (step := find_step(iq, self.processor.geometry.iq_order)) is not None:
            self._steps[index] = step
        return self.processor.spectra(iq)

    def find(self, indices: Sequence[int], spectra: Sequence[Complex64] | None = None) -> None:
        """Find the detections of frames that are not known yet, `BATCH` at a time.

        Frames that cannot be read are skipped; `resolved` raises their error.

        Args:
            indices: of the frames.
            spectra: of each frame, by the method `spectra`, if the caller has them already.
        """
        with self._lock:
            known = [
                (e := self._entries.get(k)) is not None and e.found is not None for k in indices
            ]
        new = [number for number, is_known in enumerate(known) if not is_known]
        for first in range(0, len(new), BATCH):
            batch: list[tuple[int, Complex64]] = []
            for number in new[first : first + BATCH]:
                index = indices[number]
                with suppress(RecorderError, OSError):
                    made = self._compute_spectra(index) if spectra is None else spectra[number]
                    batch.append((index, made))
            if batch:
                found = self.processor.find_all([made for _, made in batch])
                for (index, _), one in zip(batch, found, strict=True):
                    entry = self._get_entry(index)
                    with entry.lock:
                        entry.found = self._check_alignment(index, one)

    def step(self, index: int) -> int | None:
        """Return the sample of each chirp where a checked frame has a step; None if aligned."""
        return self._steps.get(index)

    def resolved(self, index: int) -> Detections:
        """Return the detections of a frame, with resolved speeds."""
        found = self._find_frame(index)
        if not (found.method == SpeedMethod.AMBIGUOUS).any():
            return found
        around = range(max(0, index - REACH), min(index + REACH + 1, len(self._times_s)))
        others = [
            (float(self._times_s[k] - self._times_s[index]), other)
            for k in around
            if k != index and (other := self._find_neighbour(k)) is not None
        ]
        return resolve_by_range_rate(found, others, self.processor.geometry)

    def _find_neighbour(self, index: int) -> Detections | None:
        """Return the detections of a frame; None if it cannot be read.

        The packing of that frame reports the error.
        """
        try:
            return self._find_frame(index)
        except (RecorderError, OSError):
            return None

    def remarks(self) -> list[str]:
        """Return notes about the frames that were checked, one sentence each."""
        return step_remarks(Counter(self._steps.values()))

    def _find_frame(self, index: int) -> Detections:
        entry = self._get_entry(index)
        with entry.lock:
            if entry.found is None:
                entry.found = self._check_alignment(
                    index, self.processor.find(self._compute_spectra(index))
                )
            return entry.found

    def _compute_spectra(self, index: int) -> Complex64:
        return self.spectra(index, self._read(index))

    def _check_alignment(self, index: int, found: Detections) -> Detections:
        """Return the detections; those of a misaligned frame with ambiguous speeds."""
        if index not in self._steps:
            return found
        geometry = self.processor.geometry
        every = np.ones(len(found), np.bool_)
        return found.turned(every, np.zeros_like(found.turns), SpeedMethod.AMBIGUOUS, geometry)

    def _get_entry(self, index: int) -> _Entry:
        with self._lock:
            entry = self._entries.pop(index, None) or _Entry()
            self._entries[index] = entry
            if len(self._entries) > _KEPT:
                self._entries.popitem(last=False)
            return entry


def step_remarks(steps: Mapping[int, int]) -> list[str]:
    """Return notes about misaligned frames.

    Args:
        steps: number of frames by the sample before which they step.
    """
    if not steps:
        return []
    sample, count = Counter(steps).most_common(1)[0]
    return [
        f"misaligned capture: {count} frames have a step before sample {sample} of every "
        "chirp; the capture does not begin with a chirp: directions and speeds are wrong"
    ]


def speed_facts(processor: RadarProcessor) -> dict[str, Any]:
    """Return the properties of the speeds for an archive's metadata."""
    geometry = processor.geometry
    calibration = geometry.calibration
    return {
        "velocity": "positive where the range grows",
        "velocity_methods": {method.name.lower(): int(method) for method in SpeedMethod},
        "velocity_period_m_s": 2 * geometry.max_velocity,
        "unambiguous_velocity_m_s": geometry.max_velocity,
        "max_velocity_m_s": max_velocity_m_s(processor),
        "antennas_calibrated": None if calibration is None else calibration.method or "unknown",
        "view_deg": list(geometry.view_deg),
    }


def max_velocity_m_s(processor: RadarProcessor) -> float:
    """Return the largest speed that a detection can have, m/s."""
    geometry = processor.geometry
    return max(FASTEST_M_S, geometry.max_velocity * (geometry.shape[1] + 1))


_STEP: Final = 4.0  # a step's power against the median of all samples' changes
_SECOND: Final = 2.0  # and against the largest change elsewhere
_EDGE: Final = 4  # samples at a chirp's ends: filters settle there


def find_step(iq: npt.NDArray[np.int16], order: str | None) -> int | None:
    """Find the sample of a chirp at which every chirp has a step; None if the capture is aligned.

    If a capture is cut some packets too early or too late, each recorded chirp holds the end of
    one chirp and the beginning of the next one.  The signal then has a step at the same sample of
    every chirp, which no echo can cause: an echo changes alike at all samples.  The mean of a
    frame's chirps is examined, in which the radar's own leakage and near, standing things remain,
    and little noise.

    Args:
        iq: int16 [chirps, tx, rx, values], as recorded.
        order: order of the values; None where samples are real.
    """
    chirps, values = iq.shape[0], iq.shape[-1]
    mean = iq.reshape(chirps, -1).mean(axis=0, dtype=np.float32)
    if order is None:
        samples = mean.reshape(-1, values)
    else:
        samples = to_pairs(mean, order).view(np.complex64).reshape(-1, values // 2)
    if samples.shape[1] < 4 * _EDGE:
        return None
    power = np.mean(np.abs(np.diff(samples)) ** 2, axis=0)[_EDGE:-_EDGE]
    at = int(np.argmax(power))
    elsewhere = np.delete(power, slice(max(0, at - 2), at + 3))
    highest = max(_STEP * float(np.median(power)), _SECOND * float(elsewhere.max(initial=0.0)))
    return at + _EDGE + 1 if power[at] > highest else None
