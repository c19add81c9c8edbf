"""The sensors of datasets of others, as streams: what ``ncore:`` and ``edgefirst:`` play.

::

    with open_dataset("ncore", path, "cameras/front") as dataset:
        stream = dataset.stream("cameras/front")
        stream.spec, len(stream), dataset.start_ns
        for item in stream.samples():
            ...                      # `Samples`, or `Damage` in the place of one
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError

ANY_NAME: Final = "stream"
"""Name of a stream in its declaration, until its sensor has one."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Consecutive samples.

    Attributes:
        t_ns: int64 [n], epoch ns.
        data: by channel an array [n, *shape], or encoded samples.
    """

    t_ns: npt.NDArray[np.int64]
    data: Mapping[str, npt.NDArray[Any] | Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Damage:
    """A sample that cannot be read.

    Attributes:
        t_ns: its time, epoch ns.
        reason: what is wrong.
        changed: it is sound, but of another form than the first one.
    """

    t_ns: int
    reason: str
    changed: bool = False


class RecordedStream(ABC):
    """The samples of one sensor of a dataset.

    Attributes:
        spec: declaration, of the name `ANY_NAME`.
        lost: what of the sensor the stream does not have, one sentence each.
    """

    spec: StreamSpec
    lost: Sequence[str] = ()

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def samples(self) -> Iterator[Samples | Damage]:
        """Yield all samples in order of time."""


class Dataset(Protocol):
    """Interface of a dataset.

    Attributes:
        start_ns: its first time, from which all its streams count, epoch ns.
    """

    start_ns: int

    def stream(self, part: str) -> RecordedStream:
        """Return the stream of a part, such as ``cameras/front``; FormatError without it."""

    def close(self) -> None:
        """Close the files."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def open_dataset(scheme: str, path: Path, part: str) -> Dataset:
    """Open a dataset to read one part of it.

    Raises:
        FormatError, StorageError: the dataset is damaged, or of another version.
    """
    if not part:
        raise FormatError(f"{path}: select a part, as in {scheme}:{path.name}#PART")
    if scheme == "edgefirst":
        from recorder.formats.edgefirst.files import EdgeFirstDataset

        return EdgeFirstDataset(path)
    from recorder.formats.ncore.sequence import NcoreSequence

    return NcoreSequence(path, part)
