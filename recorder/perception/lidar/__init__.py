"""Lidar sweeps: geometry, points and odometry."""
