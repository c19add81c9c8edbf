"""Keeping of the seconds around events, and the ring of parts that they come from."""
