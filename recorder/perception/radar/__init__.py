"""Radar cubes: spectra, detections, maps and calibration."""
