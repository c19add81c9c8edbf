"""The storage of a channel format; each format is a row of the registry in this package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from recorder.contract.channel_formats import channel_files
from recorder.contract.streams import ChannelSpec
from recorder.formats.disk import Disk
from recorder.formats.roverd.channel import ChannelReader, ChannelWriter


class Extent(ABC):
    """The whole samples in the files of one channel.

    Attributes:
        samples: number of whole samples, from the first one on.
    """

    samples: int

    @abstractmethod
    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        """Where to cut the channel to a number of samples.

        Args:
            samples: at most `self.samples`.

        Returns:
            The samples that remain (fewer if the format cannot be cut there), and the length
            of each file by its name.
        """

    def needed(self, samples: int) -> dict[str, int]:
        """The length of each file without the padding that `cut` may keep after the last sample."""
        return self.cut(samples)[1]


class NoExtent(Extent):
    """No sample at all: a file is missing, or is not of its format."""

    def __init__(self, path: Path, spec: ChannelSpec) -> None:
        self._paths = [path.with_name(name) for name in channel_files(spec.name, spec.format)]
        self.samples = 0

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        return samples, {path.name: 0 for path in self._paths if path.exists()}


class ChannelStorage:
    """One channel on disk in one format; a format that is not recorded has `reader` alone.

    Attributes:
        reader: the class that opens a channel for reading.
        path: the channel's own file.
        spec: its declaration.
        rate_hz: nominal sample rate of its stream.
    """

    reader: ClassVar[type[ChannelReader]]

    def __init__(self, path: Path, spec: ChannelSpec, rate_hz: float | None = None) -> None:
        self.path = path
        self.spec = spec
        self.rate_hz = rate_hz

    def create(self, disk: Disk) -> ChannelWriter:
        """Start the channel's files."""
        raise NotImplementedError(self.spec.format)

    def resume(self, disk: Disk, lengths: Mapping[str, int]) -> ChannelWriter:
        """Resume at committed lengths, bytes by file name."""
        raise NotImplementedError(self.spec.format)

    def measure(self, committed: int) -> Extent:
        """The whole samples in the files; the `committed` ones are not checked.

        Raises:
            FormatError, OSError: a file is missing, or is not of the format.
        """
        raise NotImplementedError(self.spec.format)

    def known_lengths(self, samples: int) -> dict[str, int]:  # noqa: ARG002
        """Bytes of those files whose length follows from the number of samples, by name."""
        return {}
