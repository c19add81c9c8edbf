"""Process of the driver of RoboSense's lidars: ``python -m drivers.robosense schema|check|run``."""

from __future__ import annotations

from drivers.kit.runner import main
from drivers.robosense.driver import RobosenseDriver

if __name__ == "__main__":
    main(RobosenseDriver)
