"""The streams for Foxglove and Lichtblick, by the Foxglove WebSocket protocol.

`protocol` has the messages of the protocol, `channels` what a channel is, `catalog` all channels;
`endpoint` is mounted in the server, `connection` is one viewer.
"""

from recorder.live.foxglove.endpoint import Foxglove as Foxglove
