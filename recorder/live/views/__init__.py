"""What a viewer sees of a stream: drawings, made of messages in a worker thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from recorder.contract.wire import Buffer, Message


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a browser draws.

    Attributes:
        header: JSON values of the view.
        arrays: by name, an encoded picture (bytes, sent as ``u1`` [size]), or an array of any
            shape, sent little-endian.
    """

    header: dict[str, Any]
    arrays: list[tuple[str, Buffer | npt.NDArray[Any]]]


class View(Protocol):
    """Draws the messages of one stream for one viewer.

    Attributes:
        every: `draw` needs every message (plots), not the newest one.
        static: sent once before the first drawing (directions of the beams, axes); None without.
    """

    every: bool
    static: Drawing | None

    def draw(self, messages: Sequence[Message]) -> Drawing | None:
        """Draw data messages of the stream; called in a worker thread, one call at a time.

        Returns:
            None if there is nothing to show yet.
        """
