"""Benchmarks of the recorder's costs."""
