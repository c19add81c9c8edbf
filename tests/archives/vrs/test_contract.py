"""VRS files as archives."""

from __future__ import annotations

from tests.archives.contract import ArchiveContract


class TestVrs(ArchiveContract):
    archive = "vrs"
    needs_samples = False
