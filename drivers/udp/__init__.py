"""Driver of sensors that send datagrams: `drivers.udp.driver` declares its options and sources."""
