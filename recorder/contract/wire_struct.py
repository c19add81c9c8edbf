"""Structs to plain values and back, with one error for values that are wrong."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct

from recorder.contract.errors import ProtocolError

Count = Annotated[int, Meta(ge=0)]
_T = TypeVar("_T")
_READY: set[Any] = set()
_LEARNING = threading.Lock()
_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `([^`]*)`")


def ready(kind: type[_T]) -> type[_T]:
    """Have msgspec learn a type before any thread decodes it; return the type.

    msgspec 0.22 learns a struct's fields when it first decodes one, and another thread that decodes
    one meanwhile crashes the process: each type that is decoded goes through here.
    """
    if kind not in _READY:
        with _LEARNING:
            msgspec.json.Decoder(kind)
            _READY.add(kind)
    return kind


def convert(values: Any, kind: type[_T], what: str) -> _T:
    """Convert plain values to an object of a type.

    Args:
        values: as the wire has them.
        kind: the type.
        what: names the message in the error.

    Raises:
        ProtocolError: names message, field and what is wrong with it.
    """
    try:
        return msgspec.convert(values, ready(kind))
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{what}: {problem_of(str(error))}") from None


def problem_of(text: str) -> str:
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
    """Check that values for the session's logs are JSON.

    Raises:
        ValueError: they are not.
    """
    try:
        json.dumps(values)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None


class WireStruct(Struct, forbid_unknown_fields=True):
    """A struct that is a mapping on the wire."""

    def to_wire(self) -> dict[str, Any]:
        """Convert the fields to plain values in the order of the wire."""
        config = self.__struct_config__
        wire: dict[str, Any] = {} if config.tag is None else {config.tag_field or "": config.tag}
        for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if value is not UNSET:
                wire[key] = value.to_wire() if isinstance(value, WireStruct) else value
        return wire
