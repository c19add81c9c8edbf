"""Cameras that stream over RTSP."""
