"""What makes the files of one sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple


class Made(NamedTuple):
    """A file's content.

    Attributes:
        suffix: of its name, before the ending; empty if the sample has only one file.
        data: its bytes.
    """

    suffix: str
    data: bytes


class SampleFiles(ABC):
    """Makes the files of one sample after another.  Safe for several threads.

    Attributes:
        files: number of files of a sample.
    """

    files = 1

    @abstractmethod
    def make(self, index: int) -> list[Made]:
        """The files of a sample; FormatError or OSError if the sample is damaged."""

    def remarks(self) -> list[str]:
        """Notes about all samples so far, one sentence each."""
        return []
