"""CAN driver: `drivers.can.driver` declares its options and sources."""
