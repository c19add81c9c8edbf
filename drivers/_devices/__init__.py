"""Connections to devices: sockets, serial ports, V4L2.  What comes in is parsed elsewhere."""
