"""A random sample of cosmic-ray's defects, and the tests nearest to each."""
