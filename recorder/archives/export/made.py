"""Encoders of the files of one sample."""

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
    """Encoder of one sample after another into files.  Safe for several threads.

    Attributes:
        files: number of files of a sample.
    """

    files = 1

    @abstractmethod
    def make(self, index: int) -> list[Made]:
        """Return the files of a sample; FormatError or OSError if the sample is damaged."""

    def remarks(self) -> list[str]:
        """Return notes about all samples so far, one sentence each."""
        return []
