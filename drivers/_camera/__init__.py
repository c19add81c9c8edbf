"""The sources of the driver `drivers.camera`."""
