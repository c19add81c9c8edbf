"""Pictures without what archives must not show: programs of others find it (docs/redaction.md)."""
