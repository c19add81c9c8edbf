"""Clips: exact cuts of recorded sessions, and merges of parts, as sessions of their own."""
