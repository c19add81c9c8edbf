"""Emulated devices: they speak the sensors' own protocols on loopback and pseudo-terminals."""
