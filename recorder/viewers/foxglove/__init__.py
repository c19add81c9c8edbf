"""Foxglove WebSocket server: the streams for Foxglove and Lichtblick.

`protocol` has the messages of the protocol, `catalog` all channels; `endpoint` is mounted in the
server, `connection` is one viewer.
"""

from recorder.viewers.foxglove.endpoint import Foxglove as Foxglove
