"""Masks: images that mark which of a camera's pixels to leave out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.ncore.component import ComponentWriter, check_name
from recorder.formats.zarr2 import Group

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


class MasksWriter(ComponentWriter):
    """Named masks of cameras, valid for the whole sequence (component ``masks``).

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
        """The cameras with an entry."""
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


def encode_png(image: npt.NDArray[np.uint8]) -> bytes:
    """A grey image as a PNG."""
    import cv2

    done, encoded = cv2.imencode(".png", np.ascontiguousarray(image))
    assert done
    return bytes(encoded.tobytes())
