"""The table of many sessions: one row a session."""
