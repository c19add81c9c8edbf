"""JSON documents whose long lists are never in memory as a whole.

A document has the types of `json`, and numpy arrays, `ArrayParts` and `LazyRows` as values of
dictionaries. These become lists, written in parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError

_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
PART_ROWS = 4096
"""Number of rows of an array that are converted to text at a time."""


@dataclass(frozen=True)
class ArrayParts:
    """Rows of a long array, part after part; each write calls `parts` again.

    Attributes:
        length: number of rows.
        parts: function that yields arrays with the rows, none of them empty.
    """

    length: int
    parts: Callable[[], Iterator[npt.NDArray[Any]]]

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> ArrayParts:
        """Split an array into parts whose texts take little memory."""
        starts = range(0, len(array), PART_ROWS)
        return cls(len(array), lambda: (array[at : at + PART_ROWS] for at in starts))


@dataclass(frozen=True)
class LazyRows:
    """List that is made while it is written; each write calls `items` or `texts` again.

    Attributes:
        length: number of items.
        items: function that yields the items from the first on.
        texts: function that yields the items as compact JSON, if they are available as such.
    """

    length: int
    items: Callable[[], Iterator[Any]]
    texts: Callable[[], Iterator[bytes]] | None = None


def is_lazy(value: object) -> bool:
    """Return whether a document has an array or `LazyRows` anywhere that `json_parts` looks."""
    if isinstance(value, Mapping):
        return any(is_lazy(item) for item in value.values())
    return isinstance(value, np.ndarray | ArrayParts | LazyRows)


def dump_json(value: object) -> bytes:
    """Encode a plain document as compact JSON; FormatError for unsupported values, such as NaN."""
    try:
        return _ENCODER.encode(value).encode()
    except (TypeError, ValueError) as error:
        raise FormatError(f"metadata that JSON cannot hold: {error}") from None


def json_parts(value: object) -> Iterator[bytes]:
    """Yield a document as compact JSON, in parts."""
    if isinstance(value, Mapping):
        yield b"{"
        for position, (key, item) in enumerate(value.items()):
            yield (b"," if position else b"") + dump_json(key) + b":"
            yield from json_parts(item)
        yield b"}"
    elif isinstance(value, np.ndarray):
        yield from json_parts(ArrayParts.of(value))
    elif isinstance(value, ArrayParts):
        yield b"["
        for position, part in enumerate(value.parts()):
            yield (b"," if position else b"") + dump_json(part.tolist())[1:-1]
        yield b"]"
    elif isinstance(value, LazyRows):
        yield b"["
        texts = map(dump_json, value.items()) if value.texts is None else value.texts()
        for position, text in enumerate(texts):
            yield b"," + text if position else text
        yield b"]"
    else:
        yield dump_json(value)
