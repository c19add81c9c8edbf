"""NCore sequences as archives, in both kinds of store."""

from __future__ import annotations

from tests.archives.contract import ArchiveContract


class TestItar(ArchiveContract):
    archive = "ncore"


class TestFolder(ArchiveContract):
    archive = "ncore"
    options = {"store": "folder", "poses": "identity"}
