"""A sensor's contribution to a sample: files, which several threads make once each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.edgefirst.container import Payload

SENSOR, RIG = "sensor", "rig"


@dataclass
class SampleFiles:
    """Files of one sample of a sensor.

    Attributes:
        files: contents by file ending.
        points: f4 [n, 3] in the rig's frame, for a lidar whose points are projected.
    """

    files: dict[str, Payload]
    points: npt.NDArray[Any] | None = None


def xyz(points: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Positions of points with fields x, y and z, f4 [n, 3]."""
    return np.stack([points["x"], points["y"], points["z"]], axis=1)
