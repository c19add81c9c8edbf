"""The config file: its sections, options, and the values that they hold."""
