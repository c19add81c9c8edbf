"""Benchmarks: what recording costs, measured."""
