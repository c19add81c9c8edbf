"""A session as one VRS file; `packer` makes it, docs/vrs.md says what is in it."""
