"""Session data that several archives need: geometry, calibration, poses, rays, detections, labels.

Nothing here writes files.  Data are numpy arrays and int64 nanoseconds, in bounded memory.
"""
