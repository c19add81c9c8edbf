"""Process of the driver of IMUs of recordings and topics: ``python -m drivers.imu ...``."""

from __future__ import annotations

from drivers.imu.driver import ImuDriver
from drivers.kit.runner import main

if __name__ == "__main__":
    main(ImuDriver)
