"""Xsens MTi units: what the driver's sources are made of."""
