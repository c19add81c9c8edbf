"""Config values as parameters that viewers may read: without secrets and without paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from recorder.common.errors import ConfigError
from recorder.common.secret_masking import MASK, mask_value
from recorder.config.yaml_lines import read_yaml

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
