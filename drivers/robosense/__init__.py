"""RoboSense's lidars."""
