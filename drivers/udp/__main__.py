"""Driver of sensors that send datagrams's process: ``python -m drivers.udp schema|check|run``."""

from __future__ import annotations

from drivers.kit.runner import main
from drivers.udp.driver import UdpDriver

if __name__ == "__main__":
    main(UdpDriver)
