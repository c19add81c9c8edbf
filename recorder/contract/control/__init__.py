"""Asking a daemon: its requests, where its socket lies, and the client."""
