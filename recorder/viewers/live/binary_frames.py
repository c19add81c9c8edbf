"""Binary messages to browsers: a drawing with its header; arrays are aligned to 8 bytes.

Layout: u4 little-endian length of the header; the header in JSON, padded with spaces so that the
payload begins at a multiple of 8; then the arrays, each padded to 8 bytes.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from recorder.common.files import Buffer, buffer_size
from recorder.viewers.live.views import Drawing

_ALIGN = 8


def pack(values: dict[str, Any], drawing: Drawing) -> bytes:
    """Encode a drawing as one message.

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


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Decode a message of `pack`: return the header, and its arrays by name.

    Raises:
        ValueError: the bytes are not such a message.
    """
    size = int.from_bytes(message[:4], "little")
    header = json.loads(message[4 : 4 + size])
    arrays = {}
    for entry in header["arrays"]:
        count = int(np.prod(entry["shape"]))
        at = 4 + size + entry["offset"]
        flat = np.frombuffer(message, "<" + entry["dtype"], count, at)
        arrays[entry["name"]] = flat.reshape(entry["shape"])
    return header, arrays


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
