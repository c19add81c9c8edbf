"""Components of cameras: encoded images, intrinsics and masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.ncore.format.component import Arrays, ComponentWriter, Metadata, check_name
from recorder.archives.ncore.format.frames import FrameWriter
from recorder.archives.ncore.format.models import (
    CameraModel,
    OpenCvPinhole,
    RowOffsetSpinning,
    Shutter,
)
from recorder.common.errors import ArchiveError
from recorder.formats.zarr2 import Group


class CameraWriter(FrameWriter):
    """Writer of a camera's frames (component ``cameras``)."""

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


PLACEHOLDER = "placeholder"


class IntrinsicsWriter(ComponentWriter):
    """Writer of the models of sensors (component ``intrinsics``)."""

    COMPONENT = "intrinsics"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cameras: dict[str, dict[str, Any]] = {}
        self._lidars: dict[str, dict[str, Any]] = {}

    def camera(self, camera_id: str, model: CameraModel) -> None:
        """Add a camera's model; an ArchiveError names an invalid parameter."""
        self._add(self._cameras, camera_id, model.attributes)

    def placeholder(
        self, camera_id: str, resolution: tuple[int, int], shutter: Shutter = "GLOBAL"
    ) -> None:
        """Add a model for an uncalibrated camera, because the loader requires one per camera.

        The model is OpenCV's pinhole without distortion, which loaders of all versions read; its
        focal length is the width.  It is marked as not measured by ``placeholder`` in the camera's
        attributes and by ``placeholder_cameras``, a list in the component's metadata.
        """
        width, height = resolution
        center = width / 2, height / 2
        model = OpenCvPinhole.of_distortion(resolution, (width, width), center, (), shutter)
        self.camera(camera_id, model)
        self._cameras[camera_id][PLACEHOLDER] = True
        self.metadata.setdefault("placeholder_cameras", []).append(camera_id)

    def lidar(self, lidar_id: str, model: RowOffsetSpinning) -> None:
        """Add a lidar's model; an ArchiveError names an invalid parameter."""
        self._add(self._lidars, lidar_id, model.attributes)

    @property
    def cameras(self) -> set[str]:
        """Cameras with a model."""
        return set(self._cameras)

    def _add(
        self, known: dict[str, dict[str, Any]], sensor: str, make: Callable[[], dict[str, Any]]
    ) -> None:
        check_name(sensor, f"a sensor of {self.full_name}")
        if sensor in known:
            self._refuse(f"{sensor} has intrinsics already")
        try:
            known[sensor] = make()
        except ArchiveError as error:
            self._refuse(f"{sensor}: {error}")

    def _write_rest(self) -> None:
        for name, models in (("cameras", self._cameras), ("lidars", self._lidars)):
            group = self.group.group(name)
            for sensor, attributes in models.items():
                group.group(sensor, attributes)


PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


class MasksWriter(ComponentWriter):
    """Writer of named masks of cameras, valid for the whole sequence (component ``masks``).

    Cameras of the sequence without masks get an empty entry, because the loader requires one.
    """

    COMPONENT = "masks"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._known: set[str] = set()

    def camera(self, camera_id: str, masks: Mapping[str, bytes | npt.NDArray[Any]]) -> None:
        """Store all masks of a camera.

        Args:
            camera_id: instance of the camera.
            masks: by name (``ego``): the bytes of a PNG, or bool or u1 [height, width], where
                True becomes 255.

        Raises:
            ArchiveError: the camera has masks already, or a mask is not such an image.
        """
        check_name(camera_id, f"a camera of {self.full_name}")
        if camera_id in self._known:
            self._refuse(f"{camera_id} has masks already")
        images = {
            check_name(name, f"a mask of {self.full_name}"): self._png(f"{camera_id}: {name}", mask)
            for name, mask in masks.items()
        }
        self._known.add(camera_id)
        group = self._cameras.group(camera_id, {"mask_names": list(images)})
        for name, image in images.items():
            group.text(name, image, {"format": "png"})

    @property
    def cameras(self) -> set[str]:
        """Cameras with an entry."""
        return set(self._known)

    def _png(self, name: str, mask: bytes | npt.NDArray[Any]) -> bytes:
        if isinstance(mask, bytes):
            if not mask.startswith(PNG_MAGIC):
                self._refuse(f"mask {name} is not a PNG")
            return mask
        if not isinstance(mask, np.ndarray) or mask.ndim != 2 or mask.dtype not in (bool, np.uint8):
            found = getattr(mask, "dtype", type(mask).__name__)
            shape = getattr(mask, "shape", "")
            self._refuse(f"mask {name} is {found} {shape}, not bool or uint8 [height, width]")
        return encode_png(mask * np.uint8(255) if mask.dtype == bool else mask)

    @cached_property
    def _cameras(self) -> Group:
        return self.group.group("cameras")

    def _write_rest(self) -> None:
        _ = self._cameras  # required, even without a mask


def encode_png(image: npt.NDArray[Any]) -> bytes:
    """Encode an image as a PNG: grey, u1 or u2 [height, width], or RGB, u1 [height, width, 3]."""
    import cv2

    channels = image[..., ::-1] if image.ndim > 2 else image  # OpenCV's order is BGR
    done, encoded = cv2.imencode(".png", np.ascontiguousarray(channels))
    assert done
    return bytes(encoded.tobytes())
