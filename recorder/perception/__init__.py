"""Shared processing of session data: geometry, calibration, poses, rays, detections, labels.

The modules write no session.  Data are numpy arrays and int64 nanoseconds, in bounded memory.
"""
