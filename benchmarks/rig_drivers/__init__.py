"""Drivers of the rig load, which return prepared frames at no other cost."""
