"""Driver of any lidar that sends point clouds: `drivers.lidar.driver` declares it."""
