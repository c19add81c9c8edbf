"""Interface of the views, and the drawings that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import UsageError
from recorder.common.files import Buffer
from recorder.config.options import OptionTable, check_options


@dataclass(frozen=True, slots=True)
class Drawing:
    """Content of one message to a browser.

    Attributes:
        header: JSON values of the view.
        arrays: by name, an encoded picture (bytes, sent as ``u1`` [size]), or an array of any
            shape, sent little-endian.
    """

    header: dict[str, Any]
    arrays: list[tuple[str, Buffer | npt.NDArray[Any]]]


class View(Protocol):
    """Interface of a view: it draws the messages of one stream for one viewer.

    Attributes:
        every: `draw` needs every message (plots), not the newest one.
        static: sent once before the first drawing (directions of the beams, axes); None if there is
            none.
    """

    every: bool
    static: Drawing | None

    def draw(self, messages: Sequence[Message]) -> Drawing | None:
        """Draw data messages of the stream; called in a worker thread, one call at a time.

        Returns:
            None if there is nothing to show yet.

        Raises:
            ProtocolError: a message does not match its stream's declaration.
            FormatError: a sample cannot be decoded; the message names the stream.
        """


def checked_options(
    spec: StreamSpec, view: str, table: OptionTable, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Check the options of a view and fill in its defaults.

    Raises:
        UsageError: an option is unknown or has a value that is not allowed.
    """

    def fail(key: str, message: str) -> UsageError:
        allowed = ", ".join(table) or "none"
        about = f" (options: {allowed})" if key not in table else ""
        where = f"option {key}: " if key else "options: "
        return UsageError(f"{spec.name}: view {view}: {where}{message}{about}")

    return check_options(table, options, fail=fail)
