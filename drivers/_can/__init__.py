"""The sources of the driver `drivers.can`."""
