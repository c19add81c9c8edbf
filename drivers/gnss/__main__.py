"""Driver of satellite receivers's process: ``python -m drivers.gnss schema|check|run``."""

from __future__ import annotations

from drivers.gnss.driver import GnssDriver
from drivers.kit.runner import main

if __name__ == "__main__":
    main(GnssDriver)
