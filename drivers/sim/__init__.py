"""The simulated world and each sensor's measurements of it."""
