"""Process of the driver of Livox's lidars: ``python -m drivers.livox schema|check|run``."""

from __future__ import annotations

from drivers.kit.runner import main
from drivers.livox.driver import LivoxDriver

if __name__ == "__main__":
    main(LivoxDriver)
