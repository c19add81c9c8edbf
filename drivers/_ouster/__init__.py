"""The sources of the Ouster driver (`drivers.ouster`)."""
