"""Pictures of a camera as JPEGs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from recorder.bus.wire import Message
from recorder.codecs import CHANNEL_FORMATS
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.options import Option, OptionTable
from recorder.perception.camera.pictures import screen_jpeg
from recorder.perception.encoded import EncodedSamples
from recorder.viewers.live.views.drawing import Drawing, checked_options

OPTIONS: Final[OptionTable] = {
    "width": Option(
        "int", 0, "width of the screen [pixels]; 0: as recorded", minimum=0, maximum=65_535
    ),
}


class PictureView:
    """View of the newest picture, as recorded or smaller; of a video the newest keyframe.

    A drawing has the array ``jpeg``.  Its header has ``width`` and ``height`` of the recorded
    picture, and ``shown``, the width and height of that JPEG.
    """

    every = False
    static: Drawing | None = None

    def __init__(self, spec: StreamSpec, options: Mapping[str, Any]) -> None:
        self._width = checked_options(spec, "picture", OPTIONS, options)["width"]
        self._channel, self._settings = _channels(spec)[0], spec.settings
        self._samples = EncodedSamples(spec)
        self._where = f"{spec.name}: {self._channel.name}"

    @staticmethod
    def is_offered(spec: StreamSpec) -> bool:
        """Check that the stream has pictures that can be shown."""
        return bool(_channels(spec))

    def draw(self, messages: Sequence[Message]) -> Drawing | None:
        """Draw the newest picture; see `recorder.viewers.live.views.View`."""
        self._samples.check(messages[-1])
        picture = self._samples.newest(messages[-1], self._channel.name)
        if not CHANNEL_FORMATS[self._channel.format].can_start(picture):
            return None
        jpeg, (shown_height, shown_width) = screen_jpeg(
            self._channel, picture, self._width, self._where, self._settings
        )
        height, width = self._channel.shape[:2]
        header = {"width": width, "height": height, "shown": [shown_width, shown_height]}
        return Drawing(header, [("jpeg", jpeg)])


def _channels(spec: StreamSpec) -> list[ChannelSpec]:
    return [channel for channel in spec.channels if channel.picture]
