"""The end of a ``with`` block for what is finished, or else removed."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Self


class Finishing:
    """Finishes at the end of a ``with`` block; discards what it wrote where that, or the block,
    fails.
    """

    @abstractmethod
    def finish(self) -> object:
        """Complete what was written."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what was written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.finish()
        except BaseException:
            self.discard()
            raise
        if error is not None:
            self.discard()
