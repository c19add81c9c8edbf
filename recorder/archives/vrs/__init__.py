"""A session as one VRS file; `packer` writes it, docs/vrs.md describes its contents."""
