"""Stored and counted make up what was sent, whatever happens on the way."""
