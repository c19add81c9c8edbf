"""L5Kit datasets: a zarr v2 folder with scenes, frames, agents and traffic light faces.

`dataset` writes and reads the format, `agents` turns boxes in space into agents, `session` packs
one session, and `packer` is what the finalizer calls.

Specification: woven-planet/l5kit, l5kit/data/zarr_dataset.py and docs/data_format.rst (format
version 2).
"""
