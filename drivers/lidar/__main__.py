"""Process of the lidar driver: ``python -m drivers.lidar schema|check|run``."""

from __future__ import annotations

from drivers.kit.runner import main
from drivers.lidar.driver import LidarDriver

if __name__ == "__main__":
    main(LidarDriver)
