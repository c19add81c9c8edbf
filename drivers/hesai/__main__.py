"""Process of the driver of Hesai's lidars: ``python -m drivers.hesai schema|check|run``."""

from __future__ import annotations

from drivers.hesai.driver import HesaiDriver
from drivers.kit.runner import main

if __name__ == "__main__":
    main(HesaiDriver)
