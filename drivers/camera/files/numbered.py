"""Numbered picture files, played as a video."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

from drivers.camera.files.video import ASSUMED_FPS, VideoFile
from drivers.camera.pictures import (
    Missing,
    Note,
    Still,
    check_jpeg,
    decode_image,
    find_size,
    import_opencv,
    resize_picture,
)
from recorder.common.errors import ProtocolError, SourceError
from recorder.common.files import find_numbered_files

_LONGEST_GAP_S = 60.0  # a larger gap of the numbers does not give the time between


class NumberedPictures:
    """Reader of the pictures of a pattern (``img_%04d.jpg``) by ascending number.

    The usual step between two numbers is one period.  Where numbers are missing, the next picture
    keeps its time, and a `Note` names them: each picture is played.  JPEGs are returned as they
    are, if the first picture is a JPEG that every reader of MJPEG shows; else all are decoded.

    >>> pictures = NumberedPictures("camera: file:img_%04d.jpg", "/data/img_%04d.jpg", fps=10)
    >>> pictures.open()
    >>> while (shot := pictures.read()) is not None:
    ...     ...                                      # (t_ns, picture), or a Note
    >>> pictures.close()

    Args:
        where: the pattern's name in messages.
        address: the pattern.
        fps: pictures a second; None: 25.

    Attributes (after `open`):
        size: (width, height) of the first picture.
        fps: pictures a second.
        codec: suffix of the files.
        jpegs: pictures are returned as unchanged JPEG bytes.
    """

    def __init__(self, where: str, address: str, fps: float | None) -> None:
        self.where = where
        self.size = (0, 0)
        self.fps = fps or ASSUMED_FPS
        self.codec = Path(address).suffix[1:].lower()
        self.jpegs = False
        self._address = Path(address)
        self._shots: list[tuple[int, Path] | Note] = []

    def open(self) -> None:
        """List the files and read the first picture.

        Raises:
            SourceError: no file has such a name, or the first one cannot be decoded.
        """
        import_opencv()
        files = find_numbered_files(self._address)
        if not files:
            raise SourceError(f"{self.where}: no file has such a name")
        self._shots = self._timed(files)
        self._shots.reverse()
        first = files[0][1]
        try:
            data = first.read_bytes()
        except OSError as error:
            raise SourceError(f"{self.where}: {first.name}: {error.strerror or error}") from None
        try:
            header = check_jpeg(data)
            self.jpegs, self.size = True, (header.width, header.height)
        except ProtocolError:
            picture = decode_image(data)
            if isinstance(picture, Missing):
                raise SourceError(f"{self.where}: {first.name}: {picture.reason}") from None
            self.jpegs, self.size = False, find_size(picture)

    def read(self) -> tuple[int, Still] | Note | None:
        """Return stamp in ns and picture (`Missing`: damaged), or a note; None at the end."""
        if not self._shots:
            return None
        shot = self._shots.pop()
        if isinstance(shot, Note):
            return shot
        t_ns, path = shot
        return t_ns, self._picture(path)

    def close(self) -> None:
        """Forget the files."""
        self._shots = []

    def _timed(self, files: list[tuple[int, Path]]) -> list[tuple[int, Path] | Note]:
        steps = Counter(after - before for (before, _), (after, _) in pairwise(files))
        usual = min(steps, key=lambda step: (-steps[step], step), default=1)
        period_ns = 1e9 / self.fps
        shots: list[tuple[int, Path] | Note] = [(0, files[0][1])]
        periods = 0.0
        for (before, _), (number, path) in pairwise(files):
            gap = (number - before) / usual
            is_long = gap / self.fps > _LONGEST_GAP_S
            periods += 1 if is_long else gap
            t_ns = round(periods * period_ns)
            if gap > 1:
                shots.append(Note(t_ns, {"numbers_missing": {"from": before, "to": number}}))
            shots.append((t_ns, path))
        return shots

    def _picture(self, path: Path) -> Still:
        try:
            data = path.read_bytes()
            if self.jpegs:
                return data[: check_jpeg(data).length]
        except (ProtocolError, OSError) as error:
            return Missing(f"{path.name}: {getattr(error, 'strerror', None) or error}")
        picture = decode_image(data)
        if isinstance(picture, Missing):
            return Missing(f"{path.name}: {picture.reason}")
        return picture if find_size(picture) == self.size else resize_picture(picture, self.size)


def open_video(where: str, address: str, fps: float | None) -> VideoFile | NumberedPictures:
    """Open a video file, or numbered pictures if the address is a pattern and not a file.

    Raises:
        SourceError: no file matches, or no picture of the files can be decoded.
    """
    video: VideoFile | NumberedPictures = VideoFile(where, address, fps)
    if not Path(address).exists() and find_numbered_files(Path(address)):
        video = NumberedPictures(where, address, fps)
    video.open()
    return video
