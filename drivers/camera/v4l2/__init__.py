"""Cameras behind Video4Linux2."""
