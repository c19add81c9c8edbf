"""What users write: the options of configs, drivers and archives, and the command line."""
