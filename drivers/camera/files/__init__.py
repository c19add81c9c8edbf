"""Video files and numbered pictures."""
