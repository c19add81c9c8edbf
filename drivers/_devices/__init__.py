"""Connections to devices: sockets, serial ports, V4L2.  Other modules parse the received bytes."""
