"""L5Kit datasets: a zarr v2 folder with scenes, frames, agents and traffic light faces.

`dataset` writes and reads the format, `agents` converts cuboids to agents, `session` packs one
session, and the finalizer calls `packer`.

Specification: woven-planet/l5kit, l5kit/data/zarr_dataset.py and docs/data_format.rst (format
version 2).
"""
