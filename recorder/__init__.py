"""The recorder: one daemon that records every sensor of a vehicle."""
