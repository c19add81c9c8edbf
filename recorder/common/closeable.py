"""Base class that adds a ``with`` block to `close`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self


class Closing:
    """Object that is closed at the end of a ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
