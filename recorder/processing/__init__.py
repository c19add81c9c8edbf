"""What several archives need of a session: geometry, calibration, poses, rays, detections, labels.

Nothing here writes; everything is numpy arrays and int64 nanoseconds, in bounded memory.
"""
