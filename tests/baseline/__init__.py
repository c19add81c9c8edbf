"""Outputs that users have and that no change of the code alters: ``python -m tests.baseline``."""
