"""MCAP files and ROS 2 bags of sessions; docs/mcap.md describes them."""
