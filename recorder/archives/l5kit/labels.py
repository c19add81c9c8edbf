"""L5Kit's perception labels for object classes (woven-planet/l5kit, l5kit/data/labels.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LABELS: Final = (
    "PERCEPTION_LABEL_NOT_SET",
    "PERCEPTION_LABEL_UNKNOWN",
    "PERCEPTION_LABEL_DONTCARE",
    "PERCEPTION_LABEL_CAR",
    "PERCEPTION_LABEL_VAN",
    "PERCEPTION_LABEL_TRAM",
    "PERCEPTION_LABEL_BUS",
    "PERCEPTION_LABEL_TRUCK",
    "PERCEPTION_LABEL_EMERGENCY_VEHICLE",
    "PERCEPTION_LABEL_OTHER_VEHICLE",
    "PERCEPTION_LABEL_BICYCLE",
    "PERCEPTION_LABEL_MOTORCYCLE",
    "PERCEPTION_LABEL_CYCLIST",
    "PERCEPTION_LABEL_MOTORCYCLIST",
    "PERCEPTION_LABEL_PEDESTRIAN",
    "PERCEPTION_LABEL_ANIMAL",
    "AVRESEARCH_LABEL_DONTCARE",
)
"""Labels in the order of ``label_probabilities``."""

_PREFIX = "PERCEPTION_LABEL_"
UNKNOWN: Final = LABELS.index(_PREFIX + "UNKNOWN")

_OTHER_WORDS: Final[Mapping[str, str]] = {
    "automobile": "car",
    "lorry": "truck",
    "ambulance": "emergency_vehicle",
    "police_car": "emergency_vehicle",
    "fire_truck": "emergency_vehicle",
    "trailer": "other_vehicle",
    "vehicle": "other_vehicle",
    "bike": "bicycle",
    "motorbike": "motorcycle",
    "rider": "cyclist",
    "person": "pedestrian",
    "human": "pedestrian",
}
_INDICES: Final = {label.lower(): index for index, label in enumerate(LABELS)} | {
    label.removeprefix(_PREFIX).lower(): index
    for index, label in enumerate(LABELS)
    if label.startswith(_PREFIX)
}


def find_label(word: str) -> int | None:
    """Return the index of a class's label (``car``, ``Emergency Vehicle``); None if unknown."""
    key = word.strip().lower().replace(" ", "_").replace("-", "_")
    return _INDICES.get(_OTHER_WORDS.get(key, key))
