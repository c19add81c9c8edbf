"""Driver of topics's process: ``python -m drivers.topics schema|check|run``."""

from __future__ import annotations

from drivers.kit.runner import main
from drivers.topics.driver import TopicsDriver

if __name__ == "__main__":
    main(TopicsDriver)
