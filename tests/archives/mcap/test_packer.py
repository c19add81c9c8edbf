from __future__ import annotations

from tests.archives.contract import ArchiveContract


class TestRos2(ArchiveContract):
    archive = "mcap"
    options = {"profile": "ros2"}
