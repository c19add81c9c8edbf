"""Device protocols: bytes to dataclasses; no sockets, no clocks."""
