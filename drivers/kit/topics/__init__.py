"""Live topics of ROS 2 and Zenoh: receiving them, and the account of what was lost."""
