"""Video files and numbered pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from drivers.camera.pictures import Note, choose_size
from drivers.camera.stream import CameraSource
from drivers.kit.driver import EndOfSource, Item, State
from recorder.codecs.streams import StreamSpec

if TYPE_CHECKING:
    from drivers.camera.files.h264 import H264File
    from drivers.camera.files.numbered import NumberedPictures
    from drivers.camera.files.video import VideoFile


class FileSource(CameraSource):
    """Source that plays a video file or a pattern of numbered pictures.

    Stamps are the container's presentation times of the frames' starts, in ns from the first frame.
    Where a container has no stamp, or a stamp that does not increase, the next stamp is 1/fps
    later.  A file that ends before its declared number of frames raises `SourceError` after its
    last complete frame.
    """

    refused: ClassVar = {
        "controls": "only a v4l2: camera has controls",
        "latency_ms": "only a live camera has latency",
        "pixel_format": "only a v4l2: or sim: camera has this option",
    }
    copies = True
    _video: VideoFile | NumberedPictures | H264File | None = None

    def open(self) -> StreamSpec:
        where = f"{self.name}: file:{self.address}"
        if self.copying:
            from drivers.camera.files.h264 import H264File

            copied = H264File(where, self.address, self.config["fps"])
            copied.open()
            self._video = copied
            return self.spec(copied.size, copied.fps, {"codec": "h264"}, finite=True)
        from drivers.camera.files.numbered import open_video

        video = open_video(where, self.address, self.config["fps"])
        self._video, self._size = video, choose_size(self.config, video.size)
        passed_through = video.jpegs and self._size is None
        settings = {"codec": video.codec, "passed_through": passed_through}
        return self.spec(self._size or video.size, video.fps, settings, finite=True)

    def read(self) -> Item:
        assert self._video is not None
        shot = self._video.read()
        if shot is None:
            raise EndOfSource
        if isinstance(shot, Note):
            return State(self.name, shot.t_ns, shot.values)
        return self.item(*shot)

    def close(self) -> None:
        if self._video is not None:
            self._video.close()
        self._video = None
