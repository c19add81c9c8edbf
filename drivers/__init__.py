"""Sensor drivers: one file per sensor, found by module name."""
