"""zlib as zlib-ng has it, whose checksums take a quarter of the time and less.

None where it is not installed; `recorder.archives.edgefirst.schema.require_packages` says so.
"""

from __future__ import annotations

from typing import Any

zlib: Any
try:
    from zlib_ng import zlib_ng as zlib
except ImportError:
    zlib = None
