"""Cameras: encoded images."""

from __future__ import annotations

from recorder.archives.ncore.component import Arrays, Metadata
from recorder.archives.ncore.frames import FrameWriter


class CameraWriter(FrameWriter):
    """A camera's frames (component ``cameras``)."""

    COMPONENT = "cameras"

    def frame(
        self,
        t_start_ns: int,
        t_end_ns: int,
        image: bytes,
        image_format: str = "jpeg",
        *,
        data: Arrays | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Store an image; its bytes are stored unchanged.

        Args:
            t_start_ns: start of the exposure of the first row; strictly increasing.
            t_end_ns: end of the exposure of the last row; strictly increasing; names the frame.
            image: the encoded image.  Readers drop zero bytes at the end of an image, which does
                not damage a JPEG; an image in another format must not end with a zero byte.
            image_format: PIL's name of the format: ``jpeg``, ``png``.
            data: generic data of the frame.
            metadata: generic metadata of the frame.

        Raises:
            ArchiveError: times are out of order or outside the sequence, the image is empty, or
                readers would cut it.
        """
        times = self._frame_times(t_start_ns, t_end_ns)
        if not image:
            self._refuse("the image has no bytes", times[1])
        if image_format != "jpeg" and image[-1] == 0:
            self._refuse(
                f"a {image_format} image must not end with a zero byte: readers drop it", times[1]
            )
        self._check_metadata(metadata, times[1])
        encoded = self._encode_generic(data, times[1])
        frame = self._begin_frame(times, encoded, metadata)
        frame.text("image", image, {"format": image_format})
