"""Intrinsics of cameras and lidars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recorder.archives import ArchiveError
from recorder.archives.ncore.component import ComponentWriter, check_name
from recorder.archives.ncore.models import CameraModel, IdealPinhole, RowOffsetSpinning

PLACEHOLDER = "placeholder"


class IntrinsicsWriter(ComponentWriter):
    """The models of sensors (component ``intrinsics``)."""

    COMPONENT = "intrinsics"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cameras: dict[str, dict[str, Any]] = {}
        self._lidars: dict[str, dict[str, Any]] = {}

    def camera(self, camera_id: str, model: CameraModel) -> None:
        """Add a camera's model; an ArchiveError names an invalid parameter."""
        self._add(self._cameras, camera_id, model.attributes)

    def placeholder(self, camera_id: str, resolution: tuple[int, int]) -> None:
        """Add a model for an uncalibrated camera, because the loader requires one per camera.

        The model is an ideal pinhole whose focal length is the width.  It is marked as not
        measured by ``placeholder`` in the camera's attributes and by ``placeholder_cameras``, a
        list in the component's metadata.
        """
        width, height = resolution
        model = IdealPinhole(
            resolution, focal_length_px=(width, width), principal_point_px=(width / 2, height / 2)
        )
        self.camera(camera_id, model)
        self._cameras[camera_id][PLACEHOLDER] = True
        self.metadata.setdefault("placeholder_cameras", []).append(camera_id)

    def lidar(self, lidar_id: str, model: RowOffsetSpinning) -> None:
        """Add a lidar's model; an ArchiveError names an invalid parameter."""
        self._add(self._lidars, lidar_id, model.attributes)

    @property
    def cameras(self) -> set[str]:
        """The cameras with a model."""
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
