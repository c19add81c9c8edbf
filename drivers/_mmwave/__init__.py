"""The sources of the driver `drivers.mmwave`."""
