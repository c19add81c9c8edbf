"""Messages of a topic on their way into a sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Encoded, Sample
from recorder.formats.recorded_topic import MESSAGE, NUMBER, PUBLISHER, SOURCE_TIME

LONGEST: Final = 1000
"""Most messages of a sample."""
_LATEST: Final = (1 << 64) - 1


@dataclass(slots=True)
class Messages:
    """Consecutive messages of a topic, which become one sample of the kit."""

    _times: list[int] = field(default_factory=list)
    _data: list[bytes] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    _publishers: list[int] = field(default_factory=list)
    _source_times: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._times)

    @property
    def is_full(self) -> bool:
        """Whether the messages must be taken before another is put."""
        return len(self._times) >= LONGEST

    @property
    def first_ns(self) -> int:
        """Time of the first message."""
        return self._times[0]

    def put(self, t_ns: int, data: bytes, number: int, publisher: int, source_ns: int) -> None:
        """Append a message.

        Args:
            t_ns: its stamp, on the time base of the source.
            data: its bytes.
            number: its publisher's number of it; 0: unknown.
            publisher: number of the publisher; 0: unknown.
            source_ns: time at which it was published, epoch ns; 0: unknown.
        """
        self._times.append(t_ns)
        self._data.append(data)
        self._numbers.append(number)
        self._publishers.append(publisher)
        self._source_times.append(source_ns if 0 < source_ns <= _LATEST else 0)

    def take(self, stream: str) -> Sample:
        """Return the messages as samples of a stream, and begin with none."""
        data: dict[str, npt.NDArray[Any] | Encoded] = {
            MESSAGE: self._data,
            NUMBER: np.array(self._numbers, "<u8"),
            PUBLISHER: np.array(self._publishers, "<u2"),
            SOURCE_TIME: np.array(self._source_times, "<u8"),
        }
        sample = Sample(stream, np.array(self._times, np.int64), data)
        self._times, self._data, self._numbers = [], [], []
        self._publishers, self._source_times = [], []
        return sample
