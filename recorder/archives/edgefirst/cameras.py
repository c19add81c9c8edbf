"""Files of a camera's pictures: JPEGs, as recorded or encoded, with EXIF; or PNGs."""

from __future__ import annotations

import json
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

import recorder
from recorder.archives.context import PackingContext
from recorder.formats import exif as exif_
from recorder.formats import png
from recorder.formats.exif import Exif, encode_exif
from recorder.formats.zip.writer import Payload
from recorder.perception.camera.camera_pictures import Pictures
from recorder.perception.frames import Exposures
from recorder.perception.geometry import Floats, apply, invert
from recorder.perception.projection import Projection, draw_depth
from recorder.session.stream import Stream

Place = tuple[float, float, float | None]
_KEYS = ("model", "device", "card", "product")


class CameraFiles:
    """Encoder of a camera's pictures as files.

    Args:
        context: the session's context, with the option ``images``.
        stream: the camera's stream.

    Attributes:
        size: width and height of the pictures.
        projection: projection of the calibrated camera; None without a calibration.
        recodes: whether pictures are encoded again instead of packed as recorded.
    """

    def __init__(self, context: PackingContext, stream: Stream) -> None:
        self.name, self.stream = stream.name, stream
        self._context = context
        self._pictures = Pictures(stream, context.options["jpeg_quality"])
        if remark := self._pictures.remark():
            context.notes.add(remark, stream.name)
        self._exposures = Exposures(stream)
        self.size = self._pictures.size
        self._settings: dict[str, Any] = dict(stream.spec.settings) if stream.spec else {}
        calibration = context.calibration.of(stream.name)
        self.projection: Projection | None = None
        if calibration.model is not None:
            if calibration.resolution == self.size:
                self.projection = Projection(context.calibration, stream.name)
            else:
                context.notes.add(
                    "calibrated for {}x{}, but the pictures have {}x{}: not used".format(
                        *(calibration.resolution or (0, 0)), *self.size
                    ),
                    stream.name,
                )
        self._png: bool = context.options["images"] == "png"
        self.recodes = self._png or self._pictures.encodes
        self._from_rig = None if calibration.pose is None else invert(calibration.pose)
        self._comment = self._parameters()

    @property
    def projects(self) -> bool:
        """True if points of the rig's frame can be projected into the pictures."""
        return self.projection is not None and self._from_rig is not None

    def make(self, index: int, t_ns: int, place: Place | None, name: str) -> dict[str, Payload]:
        """Make a picture's file, by file ending."""
        with self._context.locate_errors(self.name, index):
            exposure_ns = self._exposures.at_ns(index)
            tags = encode_exif(self._exif(t_ns, exposure_ns, place, name))
            if not self._png:
                jpeg = self._pictures.jpeg(index)
                return {"camera.jpeg": Payload(exif_.insert_exif(jpeg, tags))}
            image = self._pictures.picture(index)
            done, encoded = cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 1])
            assert done
            return {"camera.png": Payload(png.insert_exif(encoded.tobytes(), tags))}

    def depth(self, points: npt.NDArray[Any]) -> Payload:
        """Make ``.depth.png``: distances before the camera of points in the rig, f [n, 3]."""
        assert self.projection is not None
        assert self._from_rig is not None
        in_camera = apply(self._from_rig, points)
        places, inside = self.projection.pixels(in_camera)
        picture = depth_picture(places[inside], in_camera[inside, 2], self.size)
        return png.compress_png(picture, self._context.options["png_level"])

    def _exif(self, t_ns: int, exposure_ns: int, place: Place | None, name: str) -> Exif:
        latitude, longitude, height = place or (None, None, None)
        model = next((str(self._settings[key]) for key in _KEYS if self._settings.get(key)), "")
        return Exif(
            t_ns,
            latitude,
            longitude,
            height,
            make=str(self._settings.get("make") or ""),
            model=model or self.name,
            serial=str(self._settings.get("serial") or ""),
            host=str((self._context.session.header or {}).get("hostname") or ""),
            software=f"recorder {recorder.__version__}",
            description=name,
            size=self.size,
            exposure_s=exposure_ns / 1e9 or None,
            focal_px=None if self.projection is None else self.projection.focal_px,
            comment=self._comment,
        )

    def _parameters(self) -> str:
        """Return the camera's parameters as JSON: model and pose as in the calibration."""
        calibration = self._context.calibration.of(self.name)
        parameters: dict[str, Any] = {"camera": self.name}
        if self.projection is not None:
            parameters |= {"model": calibration.model, "parameters": dict(calibration.parameters)}
        if calibration.pose is not None:
            parameters["T_camera_rig"] = np.round(calibration.pose, 9).tolist()
        return json.dumps(parameters, default=str)


def depth_picture(places: Floats, depth_m: Floats, size: tuple[int, int]) -> npt.NDArray[np.uint16]:
    """Return the nearest point of each pixel, u2 [height, width], in 1/256 m; 0: no point.

    Args:
        places: f8 [n, 2], within the picture.
        depth_m: f8 [n], along the axis.
        size: width and height.
    """
    return quantize_distances(draw_depth(places, depth_m, size))


def quantize_distances(metres: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Convert distances to u2 in 1/256 m, at most 255.996 m; 0 stays 0."""
    return np.asarray(np.clip(np.rint(metres * 256.0), 0, 65_535).astype(np.uint16))
