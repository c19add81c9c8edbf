"""The end of a ``with`` block: the output is finished, or removed after an error."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Self


class StopRequest:
    """Finishes at the end of a ``with`` block; discards its output if the block or that fails."""

    @abstractmethod
    def finish(self) -> object:
        """Complete the output."""

    @abstractmethod
    def discard(self) -> None:
        """Remove the output."""

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
