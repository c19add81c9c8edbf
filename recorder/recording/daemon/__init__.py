"""Daemon: supervision of drivers and writer, recordings, and the work that follows them."""
