"""Disks that fail, stall and fill, processes that are killed, files that are damaged."""
