"""Declarations of the streams, as browsers receive them."""

from __future__ import annotations

from typing import Any

from recorder.codecs.streams import StreamSpec
from recorder.perception.frames import kind_of
from recorder.viewers.live.backend import Note
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.views import list_views


def streams_note(hub: Hub) -> Note:
    """Return the note ``streams``: each declared stream's sensor, kind, views and channels."""
    streams = {
        name: {"sensor": hub.sensors.get(name, name), **_describe(spec)}
        for name, spec in sorted(hub.specs.items())
    }
    return {"type": "streams", "streams": streams}


def _describe(spec: StreamSpec) -> dict[str, Any]:
    names = {channel.name for channel in spec.channels}
    return {
        "kind": "position" if "pos" in names else kind_of(spec),
        "views": list(list_views(spec)),
        "rate_hz": spec.rate_hz,
        "description": spec.description,
        "channels": {
            channel.name: {"shape": list(channel.shape), "unit": channel.unit}
            for channel in spec.channels
        },
    }
