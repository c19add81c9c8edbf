"""The layout file for the app: whole, and of channels and services that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recorder.perception.calibration import read_calibration
from recorder.viewers import foxglove
from recorder.viewers.foxglove.catalog import offered_channels
from recorder.viewers.foxglove.services import offered_services, parse_arguments
from tests.viewers.live.views.sensors import first

STATIC = Path(foxglove.__file__).parents[1] / "live/static"
LAYOUT = json.loads((STATIC / "foxglove-layout.json").read_text())
DEMO = Path(__file__).resolve().parents[4] / "configs" / "demo_calibration.yaml"
PANELS = {"3D", "Image", "Plot", "map", "RosOut", "CallService"}


def leaves(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    else:
        assert node["direction"] in ("row", "column")
        assert 0 < node["splitPercentage"] < 100
        yield from leaves(node["first"])
        yield from leaves(node["second"])


def texts(value: Any) -> Iterator[str]:
    """All texts of a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def test_every_panel_is_placed_once_and_of_a_known_type() -> None:
    placed = list(leaves(LAYOUT["layout"]))
    assert sorted(placed) == sorted(LAYOUT["configById"])
    assert {name.partition("!")[0] for name in placed} == PANELS
    keys = {"configById", "globalVariables", "layout", "playbackConfig", "userNodes"}
    assert LAYOUT.keys() == keys


def test_topics_and_services_are_those_of_the_demonstration() -> None:
    calibration = read_calibration(DEMO)
    specs = [first(name)[0] for name in ("lidar", "radar")]
    specs += [first("camera", width=1280)[0], first("imu")[0], first("imu", "imu_gnss")[0]]
    topics = {c.topic: c for spec in specs for c in offered_channels(spec, calibration)}
    known = {*topics, "/log", "/labels/truth"}
    used = {text for text in texts(LAYOUT["configById"]) if re.match(r"/\w", text)}
    services = {
        service.name: op for op, service in offered_services(["start", "stop", "mark"]).values()
    }
    topics_used = {re.split(r"[.\[]", text)[0] for text in used} - services.keys()
    assert topics_used <= known
    assert {"/camera/image", "/lidar/points", "/radar/detections", "/imu", "/log"} <= topics_used
    properties = json.loads(topics["/imu"].schema.data)["properties"]
    for path in (text for text in used if text.startswith("/imu.")):
        assert properties[re.split(r"[.\[]", path)[1]]["type"] == "array"
    for name, config in LAYOUT["configById"].items():
        if name.startswith("CallService!"):
            parse_arguments(services[config["serviceName"]], config["requestPayload"].encode())
