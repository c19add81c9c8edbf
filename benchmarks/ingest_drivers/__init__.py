"""The driver of the durable ingest benchmark."""
