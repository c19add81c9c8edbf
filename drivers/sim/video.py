"""The simulated camera's H.264, as a camera with its own encoder makes it (x264, by PyAV)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from drivers._devices.video_decoder import require_pyav
from drivers.sim.camera import SimulatedCamera
from recorder.contract.errors import SourceError

_QUIET = "log-level=none:scenecut=0"


class SimulatedVideo:
    """Access units of consecutive pictures; a keyframe with parameter sets every second.

    >>> video = SimulatedVideo("front", camera, first=0)
    >>> unit = video.unit()          # picture 0, Annex B

    Args:
        where: the camera, for messages.
        camera: draws the pictures; their width and height must be even.
        first: number of the first picture, which is a keyframe.

    Raises:
        SourceError: PyAV is not installed, or the pictures have an odd width or height.
    """

    def __init__(self, where: str, camera: SimulatedCamera, first: int) -> None:
        require_pyav(where)
        import av

        width, height = camera.lens.width, camera.lens.height
        if width % 2 or height % 2:
            raise SourceError(f"{where}: {width} x {height}: H.264 needs even width and height")
        self._camera = camera
        self._next = first
        self._new_frame = av.VideoFrame.from_ndarray
        context: Any = av.CodecContext.create("libx264", "w")
        context.width, context.height = width, height
        context.pix_fmt = "yuv420p"
        context.framerate = Fraction(camera.fps).limit_denominator(1000)
        context.time_base = 1 / context.framerate
        context.thread_count = 1  # the same pictures give the same bytes
        group = str(max(1, round(camera.fps)))
        tuning = {"preset": "ultrafast", "tune": "zerolatency", "g": group, "bf": "0"}
        context.options = {**tuning, "x264-params": _QUIET}
        self._context = context

    def unit(self) -> bytes:
        """Draw and encode the next picture."""
        frame = self._new_frame(self._camera.frame(self._next), format="bgr24")
        frame.pts = self._next
        self._next += 1
        return b"".join(bytes(packet) for packet in self._context.encode(frame))
