"""Names of the values of a radar's detections that are recorded as points.

NCore sequences and this recorder's processing name them with their units; EdgeFirst's files, and
radars of ROS, do not.
"""

from __future__ import annotations

from typing import Final

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
