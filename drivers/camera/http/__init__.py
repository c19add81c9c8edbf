"""Cameras that send pictures over HTTP."""
