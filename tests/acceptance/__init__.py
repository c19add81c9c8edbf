"""The command, as its users run it: whole sessions, real recordings, bad input."""
