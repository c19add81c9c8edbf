"""VRS files of sessions; docs/vrs.md describes them."""
