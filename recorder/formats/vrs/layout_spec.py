"""DataLayout as a file declares it, and its bytes in a record (VRS, DataLayout.cpp).

A record has, packed: the fixed pieces in their order; one (u32 offset, u32 length) pair for every
variable piece; the data of the variable pieces.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from recorder.common.errors import FormatError
from recorder.formats.vrs.pieces import VALUE, Piece

_PAIR = struct.Struct("<II")
MAX_FIXED_BYTES = 1 << 30
"""Most bytes of fixed pieces; the format's own reader refuses more."""


class LayoutSpec:
    """Pieces of a layout.

    >>> spec = LayoutSpec.from_json(stream_tags["DL:Data:1:0"])  # doctest: +SKIP
    >>> values, size = spec.decode(payload)  # doctest: +SKIP

    Attributes:
        pieces: pieces in stored order: the fixed pieces, then the variable pieces, each as
            declared.
        fixed_size: bytes before the variable pieces' data.
        size: bytes of every record's layout; None if a piece is variable.
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        """Order pieces by fixed and variable, each as given; labels must be unique."""
        declared = tuple(pieces)
        fixed = tuple(p for p in declared if p.fixed)
        self.variable = tuple(p for p in declared if not p.fixed)
        self.pieces = fixed + self.variable
        self._keys = tuple(p.key for p in self.pieces)
        self._places = {key: at for at, key in enumerate(self._keys)}
        if len(self._places) < len(self._keys):
            double = next(p for i, p in enumerate(self.pieces) if self._places[p.key] != i)
            raise FormatError(f"two pieces {double.type_name} {double.label!r} in one layout")
        self._fixed = fixed
        data_size = sum(p.size for p in fixed)
        self.fixed_size = data_size + _PAIR.size * len(self.variable)
        if self.fixed_size > MAX_FIXED_BYTES:
            raise FormatError(f"a layout with {self.fixed_size} bytes of fixed pieces")
        self.size = None if self.variable else self.fixed_size
        # Numbers go through `struct` all at once; points, matrices and arrays as their bytes.
        self._numbers = tuple(bool(p.kind == VALUE and p.element.code) for p in fixed)
        codes = (
            p.element.code if number else f"{p.size}s"
            for p, number in zip(fixed, self._numbers, strict=True)
        )
        self._struct = struct.Struct("<" + "".join(codes))
        self._opaque = tuple(at for at, number in enumerate(self._numbers) if not number)
        self._pairs = struct.Struct("<" + "II" * len(self.variable))

    def __eq__(self, other: object) -> bool:
        """Return whether the pieces and their places are the same; ignore defaults and tags."""
        return isinstance(other, LayoutSpec) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"<layout {', '.join(f'{p.label}: {p.type_name}' for p in self.pieces)}>"

    def place(self, piece: Piece) -> int | None:
        """Return the index in `pieces` of a piece that matches this one; None without one."""
        return self._places.get(piece.key)

    # --- records

    def encode(self, values: Sequence[Any]) -> bytes:
        """Encode one record's layout to bytes.

        Args:
            values: one value per piece, in the order of `pieces`.

        Raises:
            FormatError: a value does not fit its piece; names the piece.
        """
        fixed = self._fixed
        numbers = list(values[: len(fixed)])
        for at in self._opaque:
            numbers[at] = fixed[at].pack(numbers[at])
        try:
            head = self._struct.pack(*numbers)
        except (struct.error, OverflowError, TypeError):
            self._blame(numbers)
            raise
        if not self.variable:
            return head
        pairs: list[int] = []
        parts = [head, b""]
        offset = 0
        for piece, value in zip(self.variable, values[len(fixed) :], strict=True):
            data = piece.pack(value)
            pairs += (offset, len(data))
            parts.append(data)
            offset += len(data)
        try:
            parts[1] = self._pairs.pack(*pairs)
        except struct.error:
            raise FormatError(f"a layout with {offset} bytes of variable pieces") from None
        return b"".join(parts)

    def _blame(self, numbers: Sequence[Any]) -> None:
        for piece, number, value in zip(self._fixed, self._numbers, numbers, strict=True):
            if number:
                try:
                    struct.pack("<" + piece.element.code, value)
                except (struct.error, OverflowError, TypeError):
                    raise FormatError(
                        f"piece {piece.label!r}: wants {piece.element.name}, got {value!r}"
                    ) from None

    def decode(self, data: bytes | memoryview) -> tuple[list[Any], int]:
        """Decode the values at the start of some bytes.

        Returns:
            The values in the order of `pieces`, and the number of their bytes.

        Raises:
            FormatError: the bytes end too early, or the offsets in them do not fit.
        """
        view = memoryview(data)
        if len(view) < self.fixed_size:
            raise FormatError(f"a layout wants {self.fixed_size} bytes, {len(view)} are there")
        values: list[Any] = list(self._struct.unpack_from(view))
        for at in self._opaque:
            values[at] = self._fixed[at].unpack(memoryview(values[at]))
        if not self.variable:
            return values, self.fixed_size
        pairs = self._pairs.unpack_from(view, self._struct.size)
        size = pairs[-2] + pairs[-1]
        area = view[self.fixed_size : self.fixed_size + size]
        if len(area) < size:
            raise FormatError(
                f"a layout's variable pieces want {size} bytes, {len(area)} are there"
            )
        for piece, offset, length in zip(self.variable, pairs[::2], pairs[1::2], strict=True):
            if offset + length > size:
                raise FormatError(
                    f"piece {piece.label!r}: bytes {offset} to {offset + length} of {size}"
                )
            values.append(piece.unpack(area[offset : offset + length]))
        return values, self.fixed_size + size

    # --- tags

    def to_json(self) -> str:
        """Return the text of a tag such as ``DL:Data:1:0``."""
        entries: list[dict[str, Any]] = []
        offset = 0
        for piece in self._fixed:
            entries.append(piece.to_json(offset))
            offset += piece.size
        entries += (piece.to_json(number) for number, piece in enumerate(self.variable))
        return json.dumps({"data_layout": entries}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LayoutSpec:
        """Parse the layout that a tag declares; the order of its entries counts, offsets do not.

        Raises:
            FormatError: the text is not such a declaration, or has a piece of an unknown type.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"a data layout that is no JSON: {error}") from None
        entries = document.get("data_layout") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise FormatError("a data layout without a list 'data_layout'")
        return cls(Piece.of_json(entry) for entry in entries)
