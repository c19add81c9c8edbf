"""Interface of the views, and the drawings that they return.

A drawing is sent as one binary message with its header; arrays are aligned to 8 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import UsageError
from recorder.common.files import Buffer, buffer_size
from recorder.config.options import OptionTable, check_options

_ALIGN = 8


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
        """Draw data messages of the stream, at least one; called in a worker thread, one at a time.

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


def pack(values: dict[str, Any], drawing: Drawing) -> bytes:
    """Encode a drawing as one message.

    Layout: u4 little-endian length of the header; the header in JSON, padded with spaces so that
    the payload begins at a multiple of 8; then the arrays, each padded to 8 bytes.

    Args:
        values: keys of the header besides ``header`` and ``arrays``.
        drawing: its arrays are sent little-endian; bytes as ``u1``.
    """
    arrays, payload, offset = [], [], 0
    for name, data in drawing.arrays:
        chunk: Buffer
        if isinstance(data, np.ndarray):
            array = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
            dtype, shape, size = array.dtype.str.lstrip("<|"), list(data.shape), array.nbytes
            chunk = array.data.cast("B") if size else b""
        else:
            size = buffer_size(data)
            dtype, shape, chunk = "u1", [size], data
        arrays.append({"name": name, "dtype": dtype, "shape": shape, "offset": offset})
        padding = -size % _ALIGN
        payload += [chunk, bytes(padding)]
        offset += size + padding
    header = to_json({**values, "header": drawing.header, "arrays": arrays}).encode()
    header += b" " * (-(4 + len(header)) % _ALIGN)
    return b"".join([len(header).to_bytes(4, "little"), header, *payload])


def to_json(values: Any) -> str:
    """Encode JSON that a browser can parse: numbers that are not finite become null."""
    try:
        return json.dumps(values, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(values), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
