"""A soak of minutes; ``make soak`` does the same for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.campaign import Soak


@pytest.mark.campaign(weight=110)
def test_a_daemon_that_is_not_spared(tmp_path: Path) -> None:
    result = Soak(tmp_path, seed=5).run(seconds=100)
    found = result.balance
    assert result.wrong == []
    assert found.samples > 20_000 and found.seams > 5
    assert set(found.states) <= {"clean", "recovered"}
    assert {"killed writer", "stepped the clock"} <= set(result.done)
    assert {"daemon", "writer"} <= set(result.memory.peak_mb)
