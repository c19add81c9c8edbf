"""Driver of Xsens MTi devices's process: ``python -m drivers.xsens schema|check|run``."""

from __future__ import annotations

from drivers.kit.runner import main
from drivers.xsens.driver import XsensDriver

if __name__ == "__main__":
    main(XsensDriver)
