"""Redaction of pictures for archives by external programs (docs/redaction.md)."""
