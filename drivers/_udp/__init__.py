"""The sources of the driver `drivers.udp`."""
