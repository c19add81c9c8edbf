"""Pictures of topics and recordings: JPEGs and H.264 as they are, everything else as pixels."""

from __future__ import annotations

from typing import Any, Final

from drivers.kit.driver import Encoded
from drivers.kit.mcap_pictures import extract_picture, is_encoded_here
from drivers.kit.recorded_source import VIDEO, Pixels, video_channel
from recorder.codecs.h264 import ParameterSets, has_picture, is_key, picture_size
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError, StreamChangedError
from recorder.formats.ros2.messages import CompressedImage, CompressedVideo, Image

H264: Final = "video.h264"
NO_KEYFRAME: Final = "video before its first keyframe, which cannot be decoded"


class PictureConverter:
    """Converter of a topic's messages to the values of one channel.

    Args:
        where: the source, for messages.

    Attributes:
        channel: None before the first picture that can be recorded.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._sets = ParameterSets()
        self.channel: ChannelSpec | None = None

    def convert(self, message: CompressedImage | Image | CompressedVideo) -> Any:
        """Return a picture's values; None for video before its first keyframe.

        Raises:
            FormatError: the picture is damaged, or its encoding is not recorded.
            StreamChangedError: the size of a video has changed.
        """
        if isinstance(message, CompressedVideo):
            return self._convert_video(message)
        picture = extract_picture(message)
        if self.channel is None:
            self.channel = video_channel(picture, self._where)
        if self.channel.name != VIDEO:
            raise StreamChangedError(f"{self._where}: has pictures now, not video")
        return picture

    def _convert_video(self, message: CompressedVideo) -> bytes | None:
        if message.format.lower() != "h264":
            raise FormatError(f"video in {message.format!r:.20}: only h264 is recorded")
        return self.convert_unit(bytes(message.data))

    def convert_unit(self, unit: bytes) -> bytes | None:
        """Return an access unit of H.264, with parameter sets; None before the first keyframe.

        Raises:
            FormatError: the access unit has no picture.
            StreamChangedError: the size of the video has changed.
        """
        if not has_picture(unit):
            raise FormatError(f"{len(unit)} bytes of h264 without a picture")
        unit = self._sets.complete(unit)
        size = picture_size(unit)
        if self.channel is None:
            if size is None or not is_key(unit):
                return None
            shape = (size[1], size[0], 3)
            self.channel = ChannelSpec(H264, "h264", "u1", shape, "camera image, H.264")
        elif size is not None and (size[1], size[0], 3) != self.channel.shape:
            raise StreamChangedError(
                f"{self._where}: a picture has {size[0]} x {size[1]} pixels, not the declared "
                f"{self.channel.shape[1]} x {self.channel.shape[0]}"
            )
        return unit

    def settings(self, message: CompressedImage | Image | CompressedVideo) -> dict[str, Any]:
        """Return the stream's settings: whether pictures are recorded as they came."""
        if isinstance(message, CompressedVideo):
            return {"passed_through": True}
        return {"passed_through": not is_encoded_here(message)}


def picture_data(channel: ChannelSpec, value: bytes | Pixels) -> dict[str, Encoded | Any]:
    """Return a sample's data: a list of one encoded picture, or pixels [1, height, width, 3]."""
    return {channel.name: [value] if isinstance(value, bytes) else value[None]}
