"""Driver of Ouster lidars's process: ``python -m drivers.ouster schema|check|run``."""

from __future__ import annotations

from drivers.kit.runner import main
from drivers.ouster.driver import OusterDriver

if __name__ == "__main__":
    main(OusterDriver)
