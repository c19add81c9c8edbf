"""Messages for Foxglove: schemas, topics and encodings of streams, frames, labels and events.

The live view and archives send the same messages.  The modules need the package ``foxglove``, which
comes with the extras ``live`` and ``archives``: import them late where the package may be missing.
"""
