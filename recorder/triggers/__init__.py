"""Triggers: conditions over what is recorded, and the moments at which they come true."""
