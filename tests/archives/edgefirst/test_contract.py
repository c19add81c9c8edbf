"""EdgeFirst datasets as archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.archives.contract import ArchiveContract

pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")


class TestEdgefirst(ArchiveContract):
    archive = "edgefirst"
    steps = 1  # a window of pictures at a time, and the session has one

    def test_a_folder_is_synced_before_it_comes_into_place(
        self, session: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.check_syncs(session, monkeypatch, container="folder")

    def test_progress_counts_pictures_that_are_no_samples(self, session: Path) -> None:
        self.progress(session, every=4)
