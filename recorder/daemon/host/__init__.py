"""The machine around the daemon: its service manager, clocks, disks and kernel."""
