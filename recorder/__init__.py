"""Recorder of a vehicle: one daemon that records every sensor of a vehicle."""

__version__ = "0.1.0"
