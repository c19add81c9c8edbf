"""The writer process: receive, append, sync, acknowledge."""
