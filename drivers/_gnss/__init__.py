"""Satellite receivers: the parts of the driver's sources."""
