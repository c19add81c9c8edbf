"""Checks against the formats' own software; they skip where that is not installed."""
