"""Velodyne's lidars."""
