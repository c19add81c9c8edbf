"""Xsens MTi units: the parts of the driver's sources."""
