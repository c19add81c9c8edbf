"""Drivers of the rig load: they hand out frames that were made before, and cost nothing else."""
