"""Packers that write finished sessions as the archives that training pipelines read."""
