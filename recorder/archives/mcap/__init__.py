"""A session as an MCAP file or as a ROS 2 bag; `packer` writes it, docs/mcap.md describes it."""
