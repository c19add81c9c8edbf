"""MCAP files: a log of timestamped messages on topics, with an index (mcap.dev/spec).

`writer` and `reader` need the package ``mcap`` (extra ``archives``): import them late.  `schema`
needs nothing.
"""
