"""Camera driver: `drivers.camera.driver` declares its options and sources."""
