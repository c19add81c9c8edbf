"""The supervisor of drivers and writer."""
