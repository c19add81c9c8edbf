"""Interfaces and utilities that drivers and the recorder share."""
