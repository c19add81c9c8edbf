"""What the fuzz tests of several drivers take."""

from __future__ import annotations

import pytest

from tests.campaigns import Campaign


@pytest.fixture
def mutations(campaign: Campaign) -> int:
    """Number of mutated messages: 100,000, or the part of them that the campaign is to do."""
    return campaign.part_of(100_000)
