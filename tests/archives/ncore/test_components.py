"""Bad input: one error that names component, instance and frame, and a store without it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.archives.ncore import (
    Attribute,
    BivariateWindshield,
    FTheta,
    IdealPinhole,
    LabelDescriptor,
    LabelType,
    OpenCvFisheye,
    OpenCvPinhole,
    Quantization,
    Raw,
    RowOffsetSpinning,
    SequenceWriter,
    euler_xyz,
)
from recorder.common.errors import ArchiveError
from tests.archives.ncore import build
from tests.archives.ncore.build import RAYS, START_NS, STOP_NS
from tests.formats.zarr2.kit import keys_of

MS = 1_000_000
END_US = (START_NS + 149 * MS) // 1000
Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
def sequence(tmp_path: Path) -> Iterator[SequenceWriter]:
    """A sequence that is finished after the test, and holds what it should."""
    with SequenceWriter(tmp_path, "drive", interval_ns=(START_NS, STOP_NS)) as sequence:
        for sensor in ("front", "top", "bumper"):
            sequence.poses().static_pose(sensor, "world", np.eye(4))
        model = IdealPinhole((4, 4), focal_length_px=(4, 4), principal_point_px=(2, 2))
        sequence.intrinsics().camera("front", model)
        yield sequence


def change(values: Any, index: Any, value: Any) -> Any:
    changed = values.copy()
    changed[index] = value
    return changed


BAD_FRAMES = [
    ((50, 50), "it ends at or before the previous frame"),
    ((0, 40), "it ends at or before the previous frame"),
    ((0, 200), "it starts at .* at or before the previous frame"),
    ((90, 80), "it starts at .*, after its end"),
    ((-1, 80), "the start .* is outside the sequence"),
    ((90, 5000), "the end .* is outside the sequence"),
]


@pytest.mark.parametrize(("times_ms", "words"), BAD_FRAMES)
def test_times_of_frames(sequence: SequenceWriter, times_ms: tuple[int, int], words: str) -> None:
    camera = sequence.camera("front")
    camera.frame(START_NS, START_NS + 50 * MS, b"\xff\xd8")
    start, end = (START_NS + t * MS for t in times_ms)
    with pytest.raises(ArchiveError, match=rf"cameras/front(, frame {end // 1000} us)?: ({words})"):
        camera.frame(start, end, b"\xff\xd8")
    camera.frame(START_NS + 300 * MS, START_NS + 301 * MS, b"\xff\xd8")  # it goes on
    assert camera.frame_count == 2


def test_equal_microseconds_are_equal_times(sequence: SequenceWriter) -> None:
    camera = sequence.camera("front")
    camera.frame(START_NS, START_NS + 1000, b"\xff\xd8")
    with pytest.raises(ArchiveError, match="ends at or before"):
        camera.frame(START_NS + 1000, START_NS + 1999, b"\xff\xd8")
    with pytest.raises(ArchiveError, match="not a whole number of nanoseconds"):
        camera.frame(START_NS + 1000, 1e18, b"\xff\xd8")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"image": b""}, "the image has no bytes"),
        ({"image": b"\x89PNG\0", "image_format": "png"}, "must not end with a zero byte"),
        ({"metadata": {"a": math.nan}}, "JSON cannot hold"),
        ({"data": {"a/b": np.zeros(1)}}, "cannot name"),
        ({"data": {"a": np.zeros(1, object)}}, "a: .*Python objects"),
        ({"data": {"a": [1, 2]}}, "a is not an array but list"),
    ],
)
def test_images(sequence: SequenceWriter, arguments: dict[str, Any], words: str) -> None:
    camera = sequence.camera("front")
    with pytest.raises(ArchiveError, match=words):
        camera.frame(START_NS, START_NS + MS, **{"image": b"\xff\xd8", **arguments})
    assert "group" not in vars(camera)
    camera.frame(START_NS, START_NS + MS, b"\xff\xd8\0\0", "jpeg")


def good_sweep() -> dict[str, Any]:
    return build.sweep(np.random.default_rng(1), 0)


BAD_RAYS: list[tuple[str, Change, str]] = [
    ("dtype", lambda s: {"direction": s["direction"].astype("f8")}, "direction is float64, not"),
    ("shape", lambda s: {"direction": s["direction"][:, :2]}, r"direction has shape \(64, 2\)"),
    (
        "length",
        lambda s: {"direction": s["direction"] * 1.01},
        "direction of ray 0 does not have length",
    ),
    ("nan", lambda s: {"direction": change(s["direction"], 7, np.nan)}, "direction of ray 7"),
    ("t dtype", lambda s: {"t_ns": s["t_ns"].astype("u8")}, "t_ns is uint64, not int64"),
    ("t count", lambda s: {"t_ns": s["t_ns"][1:]}, r"t_ns has shape \(63,\), not \(64\)"),
    ("early", lambda s: {"t_ns": s["t_ns"] - 200 * MS}, "before the frame's start"),
    ("late", lambda s: {"t_ns": s["t_ns"] + 200 * MS}, "after the frame's end"),
    ("rays", lambda s: {"distance_m": s["distance_m"][:, 1:]}, r"distance_m has shape \(2, 63\)"),
    ("flat", lambda s: {"distance_m": s["distance_m"][0]}, r"not float32 \[R, N\]"),
    ("f8", lambda s: {"distance_m": s["distance_m"].astype("f8")}, "distance_m is float64"),
    (
        "behind",
        lambda s: {"distance_m": change(s["distance_m"], (1, 1), -1)},
        r"return \[1, 1\] is",
    ),
    ("far", lambda s: {"distance_m": change(s["distance_m"], (0, 1), np.inf)}, "is inf, outside"),
    ("bright", lambda s: {"intensity": change(s["intensity"], (0, 1), 2)}, "intensity of return"),
    ("holes", lambda s: {"intensity": change(s["intensity"], (0, 1), np.nan)}, "NaN in different"),
    ("returns", lambda s: {"intensity": s["intensity"][:1]}, r"intensity has shape \(1, 64\)"),
    ("element", lambda s: {"model_element": np.zeros((RAYS, 2), "i4")}, "model_element is int32"),
    ("extra", lambda s: {"returns": {"a": s["distance_m"][:1]}}, "a has shape"),
    ("name", lambda s: {"returns": {"a b": s["distance_m"]}}, "'a b' cannot name"),
]


@pytest.mark.parametrize(
    ("change_", "words"), [b[1:] for b in BAD_RAYS], ids=[b[0] for b in BAD_RAYS]
)
def test_rays(sequence: SequenceWriter, tmp_path: Path, change_: Change, words: str) -> None:
    lidar = sequence.lidar("top")
    sweep = good_sweep()
    with pytest.raises(ArchiveError, match=words) as raised:
        lidar.frame(**sweep | change_(sweep))
    if "cannot name" not in words:
        assert str(raised.value).startswith(f"lidars/top, frame {END_US} us: ")
    assert "group" not in vars(lidar)  # nothing of it is there, and the next one goes in
    lidar.frame(**sweep)
    assert lidar.frame_count == 1


def test_a_return_is_missing_as_a_whole(sequence: SequenceWriter) -> None:
    radar = sequence.radar("bumper")
    frame = build.detection(np.random.default_rng(1), 0, 3)
    velocity = np.zeros((1, 3, 2), np.float32)
    radar_frame = frame | {"returns": {"velocity": change(velocity, (0, 1, 0), np.nan)}}
    with pytest.raises(ArchiveError, match=r"velocity is NaN in a part of return \[0, 1\]"):
        radar.frame(**radar_frame)
    radar.frame(**frame | {"returns": {"velocity": velocity}})


def test_a_lidar_needs_an_intensity_and_a_radar_has_none(sequence: SequenceWriter) -> None:
    detections = build.detection(np.random.default_rng(1), 0, 3)
    with pytest.raises(ArchiveError, match="a radar's has none"):
        sequence.radar("bumper").frame(**detections | {"intensity": detections["distance_m"]})
    sweep = good_sweep()
    del sweep["intensity"]
    with pytest.raises(ArchiveError, match="a lidar's frame needs an intensity"):
        sequence.lidar("top").frame(**sweep)


def test_constants_are_checked_at_their_first_use(sequence: SequenceWriter) -> None:
    lidar = sequence.lidar("top")
    sweep = good_sweep()
    bad = lidar.constant(sweep["direction"] * 2)
    for _ in range(2):
        with pytest.raises(ArchiveError, match="does not have length 1"):
            lidar.frame(**sweep | {"direction": bad})
    good = lidar.constant(sweep["direction"])
    fixed = lidar.constant_return(sweep["intensity"])
    lidar.frame(**sweep | {"direction": good, "intensity": fixed})
    following = build.sweep(np.random.default_rng(1), 1)
    lidar.frame(**following | {"direction": good})


def test_constants_are_stored_as_others_are(tmp_path: Path) -> None:
    sweep = good_sweep()
    for name in ("plain", "constant"):
        with SequenceWriter(
            tmp_path / name, "d", interval_ns=(START_NS, STOP_NS), store="folder"
        ) as sequence:
            sequence.poses().static_pose("top", "world", np.eye(4))
            lidar = sequence.lidar("top")
            given = dict(sweep)
            if name == "constant":
                given["direction"] = lidar.constant(sweep["direction"])
                for key in ("distance_m", "intensity"):
                    given[key] = lidar.constant_return(sweep[key])
            lidar.frame(**given)
    plain, constant = (keys_of(tmp_path / n / "d.ncore4.zarr") for n in ("plain", "constant"))
    assert plain == constant


def test_poses_that_are_none(sequence: SequenceWriter) -> None:
    poses = sequence.poses()
    first, last = sequence.interval.start_ns, sequence.interval.last_ns
    two = np.array([first, last])
    eye = np.tile(np.eye(4), (2, 1, 1))
    bad: list[tuple[Any, Any, str]] = [
        (two, eye[:, :3], r"not float32 or float64 \(4, 4\)"),
        (two, eye.astype(int), "int64"),
        (two, eye * 2, "not a rotation with a translation"),
        (two, change(eye, (1, 0, 0), -1.0), "pose 1 of rig -> world is not a rotation"),
        (two, change(eye, (0, 1, 3), np.nan), "pose 0 of rig -> world is not a rotation"),
        (two[:1], eye[:1], "it has 1 poses"),
        (two[::-1], eye, "is not after the previous time"),
        (np.array([first, first + 999]), eye, "is not after the previous time"),
        (np.array([first, last + 5000]), eye, "is outside the sequence"),
        (np.array([first, last - 5000]), eye, "the sequence needs"),
        (two.astype(float), eye, "have times of type float64"),
        (np.array([-1, first]), eye, "is negative"),
    ]
    for t_ns, values, words in bad:
        with pytest.raises(ArchiveError, match=rf"poses/default: .*{words}"):
            poses.dynamic_pose("rig", "world", t_ns, values)
    poses.dynamic_pose("rig", "world", two, eye)
    for source, target in (("rig", "world"), ("world", "rig")):
        with pytest.raises(ArchiveError, match="the pose rig -> world exists already"):
            poses.static_pose(source, target, np.eye(4))
    poses.dynamic_pose(
        "trailer", "rig", two[:1] + np.array([1000, 3000]), eye, whole_sequence=False
    )


def test_cuboids(sequence: SequenceWriter) -> None:
    good = build.CUBOIDS[0]
    bad = [
        ({"t_ns": STOP_NS + 1000}, "outside the sequence"),
        ({"frame_t_ns": 0}, "outside the sequence"),
        ({"track": ""}, "track '' is not a name"),
        ({"source": "GUESS"}, "source 'GUESS' is not in"),
        ({"center_m": (0.0, math.inf, 0.0)}, "center_m .* is not three numbers"),
        ({"size_m": (1.0, 2.0)}, "size_m .* is not three numbers"),
        ({"size_m": (1.0, 2.0, -1.0)}, "is negative"),
        ({"rotation_xyz_rad": None}, "is not three numbers"),
    ]
    for changes, words in bad:
        with pytest.raises(
            ArchiveError, match=rf"cuboids/default.*: cuboid 0 \(.*\): {words}|{words}"
        ):
            sequence.cuboids().add([replace(good, **changes)])  # type: ignore[arg-type]
    sequence.cuboids().add([good])


def test_point_clouds(sequence: SequenceWriter) -> None:
    clouds = sequence.point_clouds("map", attributes={"rgb": Attribute("uint8", (3,))})
    xyz, rgb = np.zeros((5, 3), np.float32), np.zeros((5, 3), np.uint8)
    bad: list[tuple[Any, Any, str]] = [
        (xyz.astype("f8"), rgb, "xyz is float64"),
        (xyz[:, :2], rgb, "xyz has shape"),
        (xyz, rgb[1:], "rgb has shape"),
        (xyz, rgb.astype("i4"), "rgb is int32"),
        (xyz, None, r"it has attributes \[\], not \['rgb'\]"),
    ]
    for points, colours, words in bad:
        attributes = {} if colours is None else {"rgb": colours}
        with pytest.raises(ArchiveError, match=rf"point_clouds/map, frame .* us: {words}"):
            clouds.cloud(START_NS, "world", points, attributes)
    with pytest.raises(ArchiveError, match="outside the sequence"):
        clouds.cloud(0, "world", xyz, {"rgb": rgb})
    for attribute, words in [
        (Attribute("uint8", transform="SPIN"), "transform 'SPIN' is unknown"),  # type: ignore[arg-type]
        (Attribute("float32", (2,), "POINT"), "is not a POINT"),
        (Attribute("nonsense"), "dtype 'nonsense' is unknown"),
    ]:
        with pytest.raises(ArchiveError, match=words):
            sequence.point_clouds("other", attributes={"a": attribute})
    with pytest.raises(ArchiveError, match="cannot be named xyz"):
        sequence.point_clouds("other", attributes={"xyz": Attribute("float32")})


def test_labels(sequence: SequenceWriter) -> None:
    depth = sequence.camera_labels(build.DEPTH)
    good = np.full((4, 6), 12.34, np.float32)
    for values, words in [
        (good.astype("f8"), "label is float64"),
        (good[0], "label has shape"),
        (good[:0], "the label has no pixels"),
        (b"png", "the label is bytes, not an array"),
        (change(good, (1, 2), 700), r"value 700.0 at \[1, 2\] does not fit uint16"),
        (change(good, (1, 2), np.nan), r"value nan at \[1, 2\] does not fit"),
    ]:
        with pytest.raises(ArchiveError, match=rf"camera_labels/depth.z@front, frame .*: {words}"):
            depth.label(START_NS, values)
    depth.label(START_NS, good)
    with pytest.raises(ArchiveError, match="is not after the previous label"):
        depth.label(START_NS, good)
    classes = sequence.camera_labels(build.CLASSES)
    with pytest.raises(ArchiveError, match="not consist of an image's bytes"):
        classes.label(START_NS, good)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": LabelType("DEPTHS", "z")}, "category 'DEPTHS' is unknown"),  # type: ignore[arg-type]
        ({"label": LabelType("DEPTH", "")}, "needs a qualifier"),
        ({"label": LabelType("DEPTH", "z", "FEET")}, "unit 'FEET' is unknown"),  # type: ignore[arg-type]
        ({"source": "me"}, "source 'me' is not in"),
        ({"encoding": Raw("nonsense")}, "dtype 'nonsense' is unknown"),
        ({"encoding": Raw("f4", (), Quantization("f4"))}, "is not supported here"),
        ({"encoding": Raw("f4", (), Quantization("u2", 0))}, "cannot be inverted"),
    ],
)
def test_label_descriptors(sequence: SequenceWriter, changes: dict[str, Any], words: str) -> None:
    descriptor: LabelDescriptor = replace(build.DEPTH, **changes)
    with pytest.raises(ArchiveError, match=words):
        sequence.camera_labels(descriptor, "x")


SIZE = (64, 48)
LENS: dict[str, Any] = {"focal_length_px": (9, 9), "principal_point_px": (32, 24)}
THETA: dict[str, Any] = {
    "principal_point_px": (1, 1),
    "pixel_distance_to_angle": (0, 1),
    "angle_to_pixel_distance": (0, 1),
    "max_angle_rad": 1.0,
}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (IdealPinhole(SIZE), "focal_length has shape"),
        (IdealPinhole((0, 4), **LENS), "resolution .* greater than 0"),
        (IdealPinhole(SIZE, "SLOW", **LENS), "shutter 'SLOW' is unknown"),  # type: ignore[arg-type]
        (IdealPinhole(SIZE, **LENS | {"focal_length_px": (9, -9)}), "focal_length .* greater"),
        (OpenCvPinhole(SIZE, **LENS, radial=(1, 2)), "radial_coeffs has shape"),
        (OpenCvPinhole(SIZE, **LENS, thin_prism=(1, 2, 3, np.nan)), "not finite"),
        (OpenCvFisheye(SIZE, **LENS, max_angle_rad=0.0), "max_angle .* greater than 0"),
        (FTheta(SIZE, **THETA | {"pixel_distance_to_angle": range(7)}), "7 terms, more than 6"),
        (FTheta(SIZE, **THETA | {"reference": "NEITHER"}), "reference 'NEITHER' is unknown"),
        (
            FTheta(
                SIZE,
                external_distortion=BivariateWindshield((1, 2), (1,), (1,), (1,)),
                **THETA,
            ),
            "horizontal_poly: 2 terms match no whole order",
        ),
    ],
)
def test_camera_models(sequence: SequenceWriter, model: Any, words: str) -> None:
    with pytest.raises(
        ArchiveError, match=rf"intrinsics/default: rear: {model.TYPE}.*{words}|{words}"
    ):
        sequence.intrinsics().camera("rear", model)
    assert "rear" not in sequence.intrinsics().cameras


def test_opencv_distortion_vectors() -> None:
    model = OpenCvPinhole.of_distortion(SIZE, (9, 9), (32, 24), range(1, 13))
    parameters = model.attributes()["camera_model_parameters"]
    assert parameters["radial_coeffs"] == [1, 2, 5, 6, 7, 8]  # k1 k2 k3 k4 k5 k6
    assert parameters["tangential_coeffs"] == [3, 4]
    assert parameters["thin_prism_coeffs"] == [9, 10, 11, 12]
    for count in (0, 4, 5, 8):  # OpenCV takes the missing ones as 0
        vector = tuple(range(1, count + 1))
        model = OpenCvPinhole.of_distortion(SIZE, (9, 9), (32, 24), vector)
        padded = [*vector, *[0.0] * (12 - count)]
        assert list(model.radial) == [*padded[:2], *padded[4:8]]
        assert (list(model.tangential), list(model.thin_prism)) == (padded[2:4], padded[8:])
    with pytest.raises(ArchiveError, match="no distortion of 3 coefficients"):
        OpenCvPinhole.of_distortion(SIZE, (9, 9), (32, 24), (1, 2, 3))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frequency_hz": 0.0}, "spinning_frequency_hz"),
        ({"direction": "left"}, "neither cw nor ccw"),
        (
            {"row_elevations_rad": (0.1, 0.2)},
            "row_elevations_rad does not fall after element 0",
        ),
        ({"column_azimuths_rad": (0.0, 0.1, 0.05)}, "column_azimuths_rad does not turn"),
        ({"row_azimuth_offsets_rad": (0.0,)}, "row_azimuth_offsets_rad has shape"),
    ],
)
def test_lidar_models(changes: dict[str, Any], words: str) -> None:
    model = RowOffsetSpinning(10.0, "ccw", (0.2, 0.1), (0.0, 0.1, 0.2), (0.0, 0.0))
    assert model.attributes()["lidar_model_parameters"]["n_columns"] == 3
    with pytest.raises(ArchiveError, match=words):
        replace(model, **changes).attributes()


def test_placeholders_say_so(sequence: SequenceWriter, tmp_path: Path) -> None:
    sequence.intrinsics().placeholder("rear", SIZE)
    with pytest.raises(ArchiveError, match="rear has intrinsics already"):
        sequence.intrinsics().placeholder("rear", SIZE)
    packed = sequence.finish()
    keys = keys_of(packed.stores[0])
    attributes = json.loads(keys["intrinsics/default/cameras/rear/.zattrs"])
    assert attributes["placeholder"] is True
    # Loaders before 19.5 refuse ideal-pinhole, which the format's specification does not list.
    assert attributes["camera_model_type"] == "opencv-pinhole"
    distortion = attributes["camera_model_parameters"]
    for name, count in (("radial", 6), ("tangential", 2), ("thin_prism", 4)):
        assert distortion[f"{name}_coeffs"] == [0.0] * count
    metadata = json.loads(keys["intrinsics/default/.zattrs"])["generic_meta_data"]
    assert metadata == {"placeholder_cameras": ["rear"]}


def test_masks(sequence: SequenceWriter) -> None:
    masks = sequence.masks()
    bad: list[tuple[Any, str]] = [
        (b"jpeg", "not a PNG"),
        (np.zeros((2, 2)), "float64"),
        (np.zeros(3, bool), "bool"),
    ]
    for mask, words in bad:
        with pytest.raises(ArchiveError, match=rf"masks/default: mask front: ego is .*{words}"):
            masks.camera("front", {"ego": mask})
    masks.camera("front", {"ego": np.zeros((2, 2), bool)})
    with pytest.raises(ArchiveError, match="front has masks already"):
        masks.camera("front", {})


def test_generic_data(sequence: SequenceWriter) -> None:
    poses = sequence.poses()
    poses.set_generic_data({"a": np.zeros(3)}, {"x": 1})
    with pytest.raises(ArchiveError, match=r"poses/default: .*JSON cannot hold"):
        poses.set_generic_data({}, {"y": object()})
    rows = poses.generic_rows("imu", "<f4", (3,), chunk_rows=4)
    rows.append(np.zeros((9, 3), np.float32))
    camera = sequence.camera("front")
    with pytest.raises(ArchiveError, match=r"cameras/front: .*needs a frame before it"):
        camera.generic_rows("a", "u1")
    with pytest.raises(ArchiveError, match=r"cameras/front: .*JSON cannot hold"):
        camera.set_generic_data({"b": np.zeros(1)}, {"y": object()})
    camera.set_generic_data({"a": np.zeros(1)})
    with pytest.raises(ArchiveError, match="cameras/front: it has generic data 'a' already"):
        camera.set_generic_data({"a": np.zeros(1)})
    camera.frame(START_NS, START_NS + MS, b"\xff\xd8")
    keys = keys_of(sequence.finish().stores[0])
    assert json.loads(keys["poses/default/generic_data/imu/.zarray"])["shape"] == [9, 3]
    assert json.loads(keys["cameras/front/generic_data/a/.zarray"])["shape"] == [1]
    assert "cameras/front/generic_data/b/.zarray" not in keys, "refused as a whole"


@given(st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda q: math.hypot(*q) > 0.1))
def test_euler_angles_turn_as_the_quaternion(q: tuple[float, float, float, float]) -> None:
    x, y, z, w = np.array(q) / math.hypot(*q)
    expected = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
    (a, b, c) = euler_xyz(q)
    rx = np.array([[1, 0, 0], [0, math.cos(a), -math.sin(a)], [0, math.sin(a), math.cos(a)]])
    ry = np.array([[math.cos(b), 0, math.sin(b)], [0, 1, 0], [-math.sin(b), 0, math.cos(b)]])
    rz = np.array([[math.cos(c), -math.sin(c), 0], [math.sin(c), math.cos(c), 0], [0, 0, 1]])
    assert np.abs(rz @ ry @ rx - expected).max() < 1e-5


@pytest.mark.parametrize(
    "q", [(0, 1, 0, 1), (0.5, 0.5, -0.5, 0.5), (0, -1, 0, 1), (0.5, 0.5, 0.5, -0.5)]
)
def test_euler_angles_straight_up_and_down(q: tuple[float, float, float, float]) -> None:
    test_euler_angles_turn_as_the_quaternion.hypothesis.inner_test(q)  # type: ignore[attr-defined]
    assert euler_xyz(q)[0] == 0.0


def test_no_rotation() -> None:
    with pytest.raises(ValueError, match="not a rotation"):
        euler_xyz((0, 0, 0, 0))
