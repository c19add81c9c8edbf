"""Driver of satellite receivers: `drivers.gnss.driver` declares its options and sources."""
