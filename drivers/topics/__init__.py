"""Driver of topics that no other driver decodes."""
