"""Drawings of the simulated sensors' messages against the samples that are in them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from ouster.sdk import core, open_source

from drivers.kit.driver import SensorConfig
from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.model import SimulatedRadar
from drivers.ouster.driver import OusterDriver
from recorder.bus.wire import Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.options import check_options
from recorder.perception.earth import earth_points, local_to_earth
from recorder.perception.radar.radar import SpeedMethod
from recorder.viewers.live.views import Drawing, make_view
from recorder.viewers.live.views.drawing import View
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.world.lone import target, world_of
from tests.viewers.live.views.sensors import Array, first, message_of, play, read


def draw(view: View, *messages: Message) -> tuple[dict[str, Array], Drawing]:
    """The drawing's arrays by name; pictures are bytes as u1."""
    drawing = view.draw(messages)
    assert drawing is not None
    arrays = {name: np.asarray(data) for name, data in drawing.arrays}
    assert all(data.dtype.byteorder in "<=|" for data in arrays.values())
    return arrays, drawing


def image_of(drawing: Drawing) -> npt.NDArray[np.uint8]:
    [(name, jpeg)] = drawing.arrays
    assert name == "jpeg" and not isinstance(jpeg, np.ndarray)
    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), np.uint8)


# Pictures


def test_pictures_are_those_recorded_and_the_newest_is_shown() -> None:
    pictures = list(play("camera", 3, width=640))
    spec = pictures[0][0]
    view = make_view(spec, "picture", {})
    for number, (_, sample, message) in enumerate(pictures):
        _, drawing = draw(view, *[m for _, _, m in pictures[:number]], message)
        assert bytes(drawing.arrays[0][1]) == bytes(sample.data["video.avi"][0])
        assert drawing.header == {"width": 640, "height": 360, "shown": [640, 360]}
        assert read_frame_number(image_of(drawing)) == number
    small = draw(make_view(spec, "picture", {"width": 320}), pictures[2][2])[1]
    assert image_of(small).shape == (180, 320, 3)
    assert small.header == {"width": 640, "height": 360, "shown": [320, 180]}, "as recorded"


# Sweeps


def test_points_of_a_sweep_are_those_of_the_sdk() -> None:
    spec, data, message = first("lidar")
    ranges = data["rng"][0].astype(np.uint32) + data["rng_far"][0]
    info = core.SensorInfo(spec.files["lidar.json"])
    view = make_view(spec, "sweep", {})
    assert_points(view, message, info, ranges, data["rfl"][0])
    arrays, drawing = draw(view, message)
    assert (arrays["range"] > 0).sum() == (ranges > 0).sum() > 1000
    assert drawing.header["intensity"] == "reflectivity"


def assert_points(view: View, message: Message, info: Any, ranges: Array, light: Array) -> None:
    """The points that a page draws are those of the SDK; so is their brightness."""
    assert view.static is not None
    static, (arrays, drawing) = dict(view.static.arrays), draw(view, message)
    header, unit_m = drawing.header, drawing.header["range_unit_m"]
    assert all(header[key] == view.static.header[key] for key in ("rows", "columns"))
    made = static["origin"] + static["direction"] * arrays["range"].reshape(-1, 1) * unit_m
    shown = np.s_[:: header.get("row_step", 1), :: header.get("column_step", 1)]
    points = core.XYZLut(info, use_extrinsics=False)(ranges).reshape(info.h, info.w, 3)
    expected = core.destagger(info, points)[shown].reshape(-1, 3)
    hit = arrays["range"].reshape(-1) > 0
    assert np.abs(made - expected)[hit].max() < unit_m / 2 + 1e-3
    assert np.array_equal(arrays["intensity"], core.destagger(info, light)[shown])


@pytest.mark.parametrize(
    ("capture", "metadata"),
    [
        ("OS-1-128_v2.3.0_1024x10_lb_n3", "OS-1-128_v2.3.0_1024x10"),
        ("OS-0-32-U1_v2.2.0_1024x10", "OS-0-32-U1_v2.2.0_1024x10"),
    ],
)
def test_points_of_real_sweeps_are_those_of_the_sdk(
    shared_data: Path, capture: str, metadata: str
) -> None:
    """The SDK decodes the capture by itself."""
    folder = shared_data / "ouster"
    path, text = folder / f"{capture}.pcap", (folder / f"{metadata}.json").read_text()
    given: dict[str, Any] = {"metadata": str(folder / f"{metadata}.json"), "imu": False}
    options = check_options(OusterDriver.options, given)
    driver = OusterDriver(SensorConfig("lidar", "pcap", str(path), options))
    [(spec, _, message)] = read(driver, 1)
    info = core.SensorInfo(text)
    with contextlib.closing(open_source(str(path), meta=[given["metadata"]])) as source:
        (scan,) = next(iter(source))
    view = make_view(spec, "sweep", {"points": 16_384})
    assert_points(view, message, info, scan.field("RANGE"), scan.field("REFLECTIVITY"))
    assert (draw(view, message)[0]["range"] > 0).sum() > 5000


def test_near_ranges_are_exactly_those_recorded() -> None:
    spec, data, _ = first("lidar")
    near = {**data, "rng": np.minimum(data["rng"], 60_000), "rng_far": 0 * data["rng_far"]}
    arrays, drawing = draw(make_view(spec, "sweep", {}), message_of(spec, near))
    info = core.SensorInfo(spec.files["lidar.json"])
    assert drawing.header["range_unit_m"] == 0.001
    assert np.array_equal(arrays["range"], core.destagger(info, near["rng"][0]))


def test_sweeps_in_part_with_another_brightness_or_none() -> None:
    spec, data, message = first("lidar")
    view = make_view(spec, "sweep", {"points": 2048, "intensity": "near_ir"})
    arrays, drawing = draw(view, message)
    assert arrays["range"].size == arrays["intensity"].size <= 2048
    header, info = drawing.header, core.SensorInfo(spec.files["lidar.json"])
    upright = core.destagger(info, data["nir"][0])
    shown = upright[:: header["row_step"], :: header["column_step"]]
    expected = np.minimum(shown * (255 / header["intensity_white"]), 255)
    assert np.abs(arrays["intensity"] - expected).max() <= 0.51
    assert np.ptp(arrays["intensity"]) > 50
    arrays, drawing = draw(make_view(spec, "sweep", {"intensity": "none"}), message)
    assert list(arrays) == ["range"] and "intensity_white" not in drawing.header


def test_channels_that_are_not_shown_are_not_decoded() -> None:
    spec, _, message = first("lidar")
    at = [channel.name for channel in spec.channels].index("nir")
    frames = list(message.frames)
    frames[at] = bytes(len(frames[at]))
    message.frames = frames
    assert "range" in draw(make_view(spec, "sweep", {}), message)[0]


def test_a_lidar_that_records_no_rest_of_its_ranges() -> None:
    spec, data, _ = first("lidar")
    channels = tuple(c for c in spec.channels if c.name in ("rng", "t_col"))
    plain = replace(spec, channels=channels)
    kept = {channel.name: data[channel.name] for channel in channels}
    arrays, drawing = draw(make_view(plain, "sweep", {}), message_of(plain, kept))
    assert list(arrays) == ["range"] and drawing.header["range_unit_m"] == 0.001
    assert arrays["range"].max() == data["rng"].max()


# Radar maps


def test_maps_show_the_simulated_target(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(monkeypatch, [target(start=25.0, lateral_m=3.0, rcs_m2=100.0)], speed=5.0)
    radar = SimulatedRadar(SIM_CHIRP, "qqii", world=world)
    (truth,) = radar.targets(4)
    spec, data, _ = first("radar")
    message = message_of(spec, {"iq": radar.frame(4)[None], "valid": data["valid"]})
    for name, axis, true in (
        ("range_doppler", "velocity_mps", truth.velocity_mps),
        ("range_azimuth", "azimuth_deg", np.degrees(truth.azimuth_rad)),
    ):
        arrays, drawing = draw(make_view(spec, name, {}), message)
        db, header = arrays["db"], drawing.header
        assert db.dtype == np.uint8
        assert db.shape == (len(header[axis]), len(header["range_m"]))
        row, column = np.unravel_index(int(db.argmax()), db.shape)
        assert header["range_m"][column] == pytest.approx(truth.range_m, abs=0.3)
        assert header[axis][row] == pytest.approx(true, abs=3 if axis == "azimuth_deg" else 0.3)
        level_db = header["db_min"] + header["db_step"] * db
        assert np.median(level_db) == pytest.approx(0, abs=0.5) and level_db.max() > 20
        assert header["valid"] is True
        found = header["detections"][0]
        assert found["range_m"] == pytest.approx(truth.range_m, abs=0.1)
        assert found["velocity_mps"] == pytest.approx(truth.velocity_mps, abs=0.1)
        assert found["azimuth_deg"] == pytest.approx(np.degrees(truth.azimuth_rad), abs=2)
        assert found["elevation_deg"] == pytest.approx(np.degrees(truth.elevation_rad), abs=8)
        assert found["method"] in tuple(SpeedMethod)


def test_detections_are_limited_and_can_be_left_out() -> None:
    spec, data, message = first("radar")
    every = draw(make_view(spec, "range_doppler", {}), message)[1].header["detections"]
    assert len(every) > 2
    two = draw(make_view(spec, "range_doppler", {"detections": 2}), message)[1].header
    assert two["detections"] == every[:2]
    none = draw(make_view(spec, "range_doppler", {"detections": 0}), message)[1].header
    assert none["detections"] == []
    broken = message_of(spec, {**data, "valid": np.zeros(1, np.uint8)})
    assert draw(make_view(spec, "range_doppler", {}), broken)[1].header["valid"] is False


# Series


def test_series_have_every_sample_once() -> None:
    played = [one for one in play("imu", 12) if one[0].name == "imu"]
    spec = played[0][0]
    view = make_view(spec, "series", {})
    halves = (played[:4], played[4:])
    seen = []
    for half in halves:
        arrays, drawing = draw(view, *[message for _, _, message in half])
        t_ns = int(drawing.header["t0_ns"]) + np.rint(arrays["t"] * 1e9).astype(np.int64)
        samples = [sample for _, sample, _ in half]
        assert np.array_equal(t_ns, np.concatenate([sample.t_ns for sample in samples]))
        assert arrays["t"][-1] == 0 and (arrays["t"] <= 0).all()
        for name in ("acc", "avel", "rot"):
            expected = np.concatenate([np.asarray(sample.data[name]) for sample in samples])
            assert arrays[name].dtype == np.float32 and np.array_equal(arrays[name], expected)
        seen.append(len(t_ns))
        about = {channel["name"]: channel for channel in drawing.header["channels"]}
        assert about["acc"]["unit"] == "m/s^2" and about["acc"]["labels"] == ["x", "y", "z"]
        assert drawing.header["position"] is None and "local_m" not in arrays
    assert sum(seen) == sum(sample.count for _, sample, _ in played) > len(played)


def test_no_line_is_drawn_over_lost_samples_nor_over_a_pause() -> None:
    spec = StreamSpec("x", (ChannelSpec("v", "raw", "f4", (1,)),), rate_hz=100.0)
    view = make_view(spec, "series", {})

    def gaps(*samples: tuple[int, int]) -> list[int]:
        """Gaps of samples given by their numbers and times in ms, one message each."""
        messages = []
        for seq, t_ms in samples:
            message = message_of(spec, {"v": np.zeros((1, 1), np.float32)}, [t_ms * 1_000_000])
            messages.append(replace(message, seq=seq))
        found: list[int] = draw(view, *messages)[1].header["gaps"]
        return found

    assert gaps((5, 0), (6, 10), (7, 20)) == [0], "before the first, nothing is known"
    assert gaps((8, 30), (10, 50), (11, 60)) == [1], "9 was lost"
    assert gaps((13, 80), (14, 170), (15, 300)) == [0, 2], "12 was lost; 130 ms without a sample"
    assert gaps((15, 310)) == [0], "playback steps back"
    assert gaps((16, 320)) == []


def test_positions_are_shown_exactly_and_as_a_track() -> None:
    played = [one for one in play("imu", 60, batch_ms=0.0) if one[0].name == "imu_gnss"]
    spec = played[0][0]
    view = make_view(spec, "series", {})
    arrays, drawing = draw(view, *[message for _, _, message in played])
    positions = np.concatenate([np.asarray(sample.data["pos"]) for _, sample, _ in played])
    assert arrays["pos"].dtype == np.float64 and np.array_equal(arrays["pos"], positions)
    header = drawing.header
    assert header["position"] == "pos" and "utc" not in arrays
    labels = {channel["name"]: channel["labels"] for channel in header["channels"]}
    assert labels["pos"][:2] == ["latitude", "longitude"] and labels["sats"] == ["sats"]
    assert arrays["cov"].shape == (len(positions), 9) and len(labels["cov"]) == 9
    known = np.isfinite(positions).all(axis=1)
    assert known.sum() > 2
    axes = local_to_earth(header["origin"])
    local = np.concatenate([arrays["local_m"][known], np.ones((known.sum(), 1))], axis=1)
    assert np.allclose((local @ axes.T)[:, :3], earth_points(positions[known]), atol=1e-6)
    assert np.isnan(arrays["local_m"][~known]).all()
    again = draw(view, played[-1][2])[1]
    assert again.header["origin"] == header["origin"], "the track goes on"


def test_series_of_every_kind_of_number() -> None:
    spec = StreamSpec(
        "wheel",
        (
            ChannelSpec("ticks", "raw", "u4", (), "since the start"),
            ChannelSpec("gear", "lzma", "i1"),
            ChannelSpec("speed", "raw", "f2", (2,), "speed: left, right", "m/s"),
            ChannelSpec("stamp", "raw", "u8"),
        ),
    )
    data = {
        "ticks": np.array([4_000_000_001, 5], "<u4"),
        "gear": np.array([-1, 3], "<i1"),
        "speed": np.array([[1.5, 2.5], [np.nan, 3]], "<f2"),
        "stamp": np.zeros(2, "<u8"),
    }
    arrays, drawing = draw(make_view(spec, "series", {}), message_of(spec, data, [5, 1_000_005]))
    assert arrays["t"].tolist() == [-1e-3, 0]
    assert arrays["ticks"].dtype == np.float64
    assert arrays["ticks"].tolist() == [[4_000_000_001], [5]]
    assert arrays["gear"].tolist() == [[-1], [3]] and arrays["gear"].dtype == np.float32
    assert np.array_equal(arrays["speed"], data["speed"].astype("<f4"), equal_nan=True)
    assert list(arrays) == ["t", "ticks", "gear", "speed"]
    assert drawing.header["channels"][2]["labels"] == ["left", "right"]


def test_messages_of_several_samples_show_the_last() -> None:
    spec, data, _ = first("radar")
    shuffled = np.stack([data["iq"][0], data["iq"][0][::-1]])
    both = message_of(spec, {"iq": shuffled, "valid": np.array([0, 1], np.uint8)})
    alone = message_of(spec, {"iq": shuffled[1:], "valid": np.ones(1, np.uint8)})
    view = make_view(spec, "range_doppler", {})
    assert np.array_equal(draw(view, both)[0]["db"], draw(view, alone)[0]["db"])
