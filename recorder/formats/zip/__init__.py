"""ZIP archives with members that begin at page boundaries."""

from typing import Any

zlib: Any
"""The zlib of zlib-ng, whose checksums take at most a quarter of the standard zlib's time.

None if zlib-ng is not installed; `recorder.archives.edgefirst.schema.require_packages` reports
a missing package.
"""
try:
    from zlib_ng import zlib_ng as zlib
except ImportError:
    zlib = None
