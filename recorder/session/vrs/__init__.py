"""The file ``session.vrs``: the streams of a session in VRS."""
