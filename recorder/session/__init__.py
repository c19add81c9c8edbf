"""Sessions on disk: layout, journal, reading."""
