"""What streams offer, and how views are made: options, files of the stream."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, UsageError
from recorder.viewers.live.views import list_views, make_view
from tests.session.build import camera_spec, imu_spec, lidar_spec, radar_spec
from tests.viewers.live.views.sensors import first, with_file


@pytest.mark.parametrize(
    ("sensor", "stream", "views"),
    [
        ("camera", "camera", ("picture",)),
        ("lidar", "lidar", ("sweep",)),
        ("lidar", "lidar_imu", ("series",)),
        ("radar", "radar", ("range_doppler", "range_azimuth")),
        ("imu", "imu", ("series",)),
        ("imu", "imu_gnss", ("series",)),
        ("front", "front", ()),
    ],
)
def test_what_the_simulated_sensors_offer(sensor: str, stream: str, views: tuple[str, ...]) -> None:
    assert list_views(first(sensor, stream)[0]) == views


def test_streams_without_their_files_offer_no_view() -> None:
    assert list_views(with_file(lidar_spec())) == ()
    assert list_views(with_file(radar_spec())) == ()
    with pytest.raises(UsageError, match=r"lidar: has no view 'sweep' \(views: none\)"):
        make_view(with_file(lidar_spec()), "sweep", {})


def test_a_radar_whose_antennas_are_unknown_has_no_azimuths() -> None:
    spec, _, _ = first("radar")
    known = json.loads(spec.files["radar.json"])
    del known["antennas"]
    assert list_views(with_file(spec, radar_json=json.dumps(known))) == ("range_doppler",)


def test_streams_of_other_samples_offer_what_fits() -> None:
    words = StreamSpec("words", (ChannelSpec("stamp", "raw", "u8", (4,)),))
    assert list_views(words) == ()
    both = replace(imu_spec(), channels=(*imu_spec().channels, *camera_spec().channels))
    assert list_views(both) == ("picture",)  # a plot would read all pictures
    flat = replace(lidar_spec(), channels=(ChannelSpec("rng", "lzmaf", "u2", (64,)),))
    assert list_views(flat) == ()


@pytest.mark.parametrize(
    ("sensor", "view", "options", "message"),
    [
        ("camera", "picture", {"width": -1}, "option width: -1 is below the minimum of 0"),
        ("camera", "picture", {"width": "wide"}, "option width: needs a whole number, not"),
        ("camera", "picture", {"height": 3}, r"option height: unknown key .*\(options: width\)"),
        ("camera", "sweep", {}, r"camera: has no view 'sweep' \(views: picture\)"),
        ("lidar", "sweep", {"points": True}, "view sweep: option points: needs a whole number"),
        (
            "lidar",
            "sweep",
            {"intensity": "signal"},
            "option intensity: 'signal' is not one of reflectivity, near_ir, none",
        ),
        ("radar", "range_doppler", {"threshold_db": 1}, "option threshold_db: 1 is below"),
        ("radar", "range_azimuth", {"detections": 5000}, "option detections: 5000 is above"),
        ("imu", "series", {"window": 1}, r"option window: unknown key \(options: none\)"),
        ("imu", "series", [], "imu: view series: options: needs a mapping"),
    ],
)
def test_wrong_options_are_named(sensor: str, view: str, options: Any, message: str) -> None:
    spec = first(sensor, sensor)[0]
    with pytest.raises(UsageError, match=message):
        make_view(spec, view, options)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"lidar_mode": 3}'])
def test_metadata_of_a_lidar_that_cannot_be_used_are_named(text: str) -> None:
    with pytest.raises(FormatError, match=r"lidar: lidar\.json: is not usable Ouster metadata"):
        make_view(with_file(lidar_spec(), lidar_json=text), "sweep", {})


def test_metadata_of_a_lidar_of_another_shape_are_named() -> None:
    spec, _, _ = first("lidar")
    other = first("lidar", beams=64)[0].files["lidar.json"]
    with pytest.raises(FormatError, match="has 64 beams and 512 columns, the channel rng has"):
        make_view(with_file(spec, lidar_json=other), "sweep", {})


@pytest.mark.parametrize("view", ["range_doppler", "range_azimuth"])
def test_parameters_of_a_radar_that_cannot_be_used_are_named(view: str) -> None:
    spec, _, _ = first("radar")
    for text in ("", "{}", "[]", '{"range_resolution": "near"}'):
        with pytest.raises(FormatError, match=r"radar: radar\.json: "):
            make_view(with_file(spec, radar_json=text), view, {})
    known = json.loads(spec.files["radar.json"]) | {"raw_shape": [64, 3, 4, 128]}
    with pytest.raises(FormatError, match=r"radar\.json: has samples \[64, 3, 4, 128\], the"):
        make_view(with_file(spec, radar_json=json.dumps(known)), view, {})
