"""Catalog: a table of many sessions, one row each."""
