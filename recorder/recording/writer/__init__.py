"""Writer process: receives messages, appends, syncs and acknowledges them."""
