"""Services of the server: requests to the daemon in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from recorder.common.errors import ProtocolError
from recorder.perception.foxglove.schema import Schema
from recorder.viewers.foxglove.protocol import Service

_TEXT: Final = {"type": "string"}
_REQUESTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "start": {"name": _TEXT},
    "stop": {},
    "mark": {"text": _TEXT},
}
_REPLY: Final = {"ok": {"type": "boolean"}, "session": _TEXT, "error": _TEXT}


def offered_services(ops: Iterable[str]) -> dict[int, tuple[str, Service]]:
    """Return the services for the accepted requests: `op` and description by number."""
    known = set(ops)
    return {
        number: (op, _service(number, op, arguments))
        for number, (op, arguments) in enumerate(_REQUESTS.items(), start=1)
        if op in known
    }


def parse_arguments(op: str, payload: bytes) -> dict[str, Any]:
    """Parse the arguments of a call; an empty payload, an empty text and null give none.

    Raises:
        ProtocolError: the payload is not a JSON object with known keys.
    """
    try:
        values = json.loads(payload) if payload.strip() else {}
    except (ValueError, RecursionError):
        raise ProtocolError(f"{op}: the request is not JSON") from None
    if not isinstance(values, dict):
        raise ProtocolError(f"{op}: the request is not an object")
    for key in values:
        if key not in _REQUESTS[op]:
            known = ", ".join(_REQUESTS[op]) or "nothing"
            raise ProtocolError(f"{op}: takes {known}, not {key[:40]!r}")
    return {key: value for key, value in values.items() if value not in (None, "")}


def _service(number: int, op: str, arguments: Mapping[str, Any]) -> Service:
    name = op.capitalize()
    return Service(
        number,
        f"/recorder/{op}",
        _schema(f"recorder.{name}Request", arguments),
        _schema(f"recorder.{name}Reply", _REPLY),
    )


def _schema(name: str, properties: Mapping[str, Any]) -> Schema:
    schema = {"type": "object", "title": name, "properties": dict(properties)}
    return Schema(name, "jsonschema", json.dumps(schema).encode())
