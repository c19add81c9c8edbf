"""Driver of TI mmWave radars: `drivers.mmwave.driver` declares its options and sources."""
