"""CAN driver's process: ``python -m drivers.can schema|check|run``."""

from __future__ import annotations

from drivers.can.driver import CanDriver
from drivers.kit.runner import main

if __name__ == "__main__":
    main(CanDriver)
