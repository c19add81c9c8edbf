"""Sensor drivers: one file a sensor, found by module name."""
