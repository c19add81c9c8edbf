"""Services and parameters of the server.

Services are requests to the daemon in JSON.  Parameters are the config's values, without secrets
and without paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from recorder.common.errors import ConfigError, ProtocolError
from recorder.common.secret_masking import MASK, mask_value
from recorder.config.yaml_lines import read_yaml
from recorder.perception.foxglove.channels import Schema
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


_SECRET: Final = re.compile(r"token|pass(word|wd|phrase)?$|secret|curve_keys|api_?key", re.I)
_PATH: Final = re.compile(r"(?:(?P<scheme>[a-z][a-z0-9]*):)?(?!//)(?:[^\s:]*/)(?P<name>[^/]*)")
_DEEPEST: Final = 8


def config_parameters(path: Path) -> dict[str, Any]:
    """Return the values of a config by their keys, such as ``sensors.camera.fps``.

    A password or token is ``***``, a path is its last part; keys without a value are left out.  A
    file that cannot be read has no parameters.
    """
    try:
        values = read_yaml(path).values
    except (ConfigError, OSError):
        return {}
    return dict(_leaves(values, "", 0))


def _leaves(values: Mapping[Any, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _leaves(value, f"{name}.", depth + 1)
        elif value is not None:
            yield name, MASK if _SECRET.search(str(key)) else _simplify(value, depth)


def _simplify(value: Any, depth: int) -> Any:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, list | tuple) and depth < _DEEPEST:
        return [_simplify(item, depth + 1) for item in value if item is not None]
    if isinstance(value, Mapping):
        return dict(_leaves(value, "", _DEEPEST))
    text = mask_value(str(value))
    path = _PATH.fullmatch(text)
    if path is None:
        return text
    return f"{path['scheme']}:{path['name']}" if path["scheme"] else path["name"]
