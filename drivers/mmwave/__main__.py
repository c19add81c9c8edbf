"""Driver of TI mmWave radars's process: ``python -m drivers.mmwave schema|check|run``."""

from __future__ import annotations

from drivers.kit.runner import main
from drivers.mmwave.driver import MmwaveDriver

if __name__ == "__main__":
    main(MmwaveDriver)
