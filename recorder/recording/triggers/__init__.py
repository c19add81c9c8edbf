"""Triggers: conditions over recorded values, and the moments at which they become true."""
