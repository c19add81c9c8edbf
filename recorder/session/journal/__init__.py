"""The journal of a session: commit records, their digests and the state that they prove."""
