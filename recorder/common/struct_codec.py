"""Conversion between structs and plain values, with one error for wrong values."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct

from recorder.common.errors import ProtocolError

Count = Annotated[int, Meta(ge=0)]
_T = TypeVar("_T")
_K = TypeVar("_K")  # a type, or a union of types
_READY: set[Any] = set()
_LEARNING = threading.Lock()
_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `([^`]*)`")


def prepare_type(kind: _K) -> _K:
    """Prepare a type in msgspec before any thread decodes it; return the type.

    msgspec 0.22 reads a struct's fields when it first decodes one. Another thread that decodes one
    at that moment crashes the process. Therefore each decoded type passes through here.
    """
    if kind not in _READY:
        with _LEARNING:
            msgspec.json.Decoder(kind)
            _READY.add(kind)
    return kind


def decode_values(values: Any, kind: type[_T], what: str) -> _T:
    """Convert plain values to an object of a type.

    Args:
        values: as decoded from the wire.
        kind: the type.
        what: name of the message in errors.

    Raises:
        ProtocolError: names message, field and what is wrong with it.
    """
    try:
        return msgspec.convert(values, prepare_type(kind))
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{what}: {describe_problem(str(error))}") from None


def describe_problem(text: str) -> str:
    """Rewrite a msgspec error as a sentence that begins with the place."""
    place = _PLACE.search(text)
    where = "" if place is None else place[1]
    if place is not None:
        text = text[: place.start()]
    if (field := _FIELD.match(text)) is not None:
        where = f"{where}.{field[2]}".lstrip(".")
        text = "is missing" if field[1].startswith("missing") else "there is no such field"
    return f"{where}: {text}" if where else text


def check_json(values: Mapping[str, Any]) -> None:
    """Check that values for the session's logs can be written as JSON.

    Raises:
        ValueError: they cannot.
    """
    try:
        json.dumps(values)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None


class WireStruct(Struct, forbid_unknown_fields=True):
    """Struct that is a mapping on the wire."""

    def to_wire(self) -> dict[str, Any]:
        """Convert the fields to plain values in the order of the wire."""
        config = self.__struct_config__
        wire: dict[str, Any] = {} if config.tag is None else {config.tag_field or "": config.tag}
        for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if value is not UNSET:
                wire[key] = value.to_wire() if isinstance(value, WireStruct) else value
        return wire
