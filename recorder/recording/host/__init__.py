"""Interfaces to the host: service manager, clocks, disks and kernel."""
