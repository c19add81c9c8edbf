"""Servers of control requests: the control socket, and TCP with keys."""
