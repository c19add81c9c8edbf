"""Columns of sweeps that are rays from a sensor's origin, in the channel format ``points``.

A record is a ray: ``direction`` f4 [3], a unit vector; ``distance`` f4 or f4 [returns], m, NaN
where there is no return; further values of each return (setting ``ray_returns``) alike;
``t_offset`` u4, ns after the start of the frame, which is the channel ``duration`` (u4, ns) before
the sample's stamp.
"""

from __future__ import annotations

from typing import Final

DIRECTION: Final = "direction"
DISTANCE: Final = "distance"
ELEMENT: Final = "element"
"""Column u2 [2], row and column of a ray in the lidar's model."""
TIMES: Final = "t_offset"
RETURNS: Final = "ray_returns"
"""Setting of the stream: names of the columns that are values of each return."""
DURATION: Final = "duration"
DETECTIONS: Final = "detections.bin"
"""Channel of a radar's detections."""
POINT_FIELDS: Final = {
    "radial_velocity_m_s": "speed",
    "power_db": "power",
    "snr_db": "noise",
    "rcs_dbsm": "rcs",
    "velocity_margin_db": "speed_margin",
    "velocity_method": "speed_method",
    "velocity_period_m_s": "speed_period",
}
"""EdgeFirst's field by the name with a unit; ``noise`` is the power minus the ratio ``snr_db``."""
RETURN_VALUES: Final = {field: name for name, field in POINT_FIELDS.items()}
"""The name with a unit by EdgeFirst's field."""
