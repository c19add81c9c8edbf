"""A base class that gives `close` a ``with`` block."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self


class Closing:
    """Closes itself at the end of a ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
