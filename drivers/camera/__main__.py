"""Camera driver's process: ``python -m drivers.camera schema|check|run``."""

from __future__ import annotations

from drivers.camera.driver import CameraDriver
from drivers.kit.runner import main

if __name__ == "__main__":
    main(CameraDriver)
