"""The end of a ``with`` block for all that has a `close`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self


class Closing:
    """Closes itself at the end of a ``with`` block, whatever happened in it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
