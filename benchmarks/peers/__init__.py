"""Programs with other software and without ours, which run in environments of their own."""
