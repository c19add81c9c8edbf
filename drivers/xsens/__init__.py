"""Driver of Xsens MTi devices: `drivers.xsens.driver` declares its options and sources."""
