"""From one vehicle to a fleet: stores, what is in them, and packing on a cluster."""
