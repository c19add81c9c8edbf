"""Fleet tools: stores of uploaded sessions, catalogs of stores, and packing on a cluster."""
