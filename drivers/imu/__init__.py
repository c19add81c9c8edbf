"""Driver of inertial measurement units of recordings and topics: see `drivers.imu.driver`."""
