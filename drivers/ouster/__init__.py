"""Driver of Ouster lidars: `drivers.ouster.driver` declares its options and sources."""
