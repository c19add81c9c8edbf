"""Process of the driver of Velodyne's lidars: ``python -m drivers.velodyne schema|check|run``."""

from __future__ import annotations

from drivers.kit.runner import main
from drivers.velodyne.driver import VelodyneDriver

if __name__ == "__main__":
    main(VelodyneDriver)
