"""The common parts of all driver processes."""
