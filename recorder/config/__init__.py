"""Sections, options and values of the config file."""
