"""A session on disk: layout, journal, reading."""
