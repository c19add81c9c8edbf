"""CRC-32 of MCAP."""

from __future__ import annotations

import zlib
from typing import Any

from recorder.contract.wire import Buffer

zlib_ng: Any
try:
    from zlib_ng import zlib_ng
except ImportError:  # of the extra `archives`: a tenth of the time
    zlib_ng = None


def crc32(data: Buffer, crc: int = 0) -> int:
    """CRC-32 (ISO 3309) of bytes, after that of the bytes before."""
    return zlib.crc32(data, crc) if zlib_ng is None else zlib_ng.crc32(data, crc)
