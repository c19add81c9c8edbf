"""Clouds of ROS 2 as columns: five drivers' layouts, strange ones, and what is no cloud."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.codecs.points import points_dtype, unpack_points
from recorder.common.errors import FormatError, StreamChangedError
from recorder.formats.ros2.clouds import (
    NO_TIME,
    Cloud,
    CloudLayout,
    decode_cloud,
    decode_livox,
)
from recorder.formats.ros2.messages import PointField
from tests.campaigns import Campaign
from tests.formats.ros2.cloud_kit import (
    DRIVERS,
    LIVOX,
    STAMP_NS,
    Sent,
    dtype,
    encode_cloud,
    fields_of,
    hesai,
    livox,
    ouster,
    velodyne,
)
from tests.session.clouds import begin_ns

RNG = np.random.default_rng
XYZ = {"x": (0, "f4"), "y": (4, "f4"), "z": (8, "f4")}


def decode(sent: Sent) -> Cloud:
    return decode_livox(LIVOX, sent.data) if sent.type_name == LIVOX else decode_cloud(sent.data)


def columns_of(layout: CloudLayout) -> dict[str, str]:
    return {c.name: c.type + "".join(map(str, c.shape)) for c in layout.columns}


def unpacked(layout: CloudLayout, cloud: Cloud) -> tuple[npt.NDArray[Any], int]:
    """The points as they are read, and the sample's time minus the cloud's stamp."""
    sweep = layout.pack(cloud)
    return unpack_points(sweep.frame, points_dtype(layout.columns), "here"), sweep.end_ns


def times_of(points: npt.NDArray[Any], end_ns: int) -> npt.NDArray[np.int64]:
    """The points' times minus the cloud's stamp."""
    return begin_ns(end_ns, points) + points["t_offset"].astype(np.int64)


def converted(data: bytes) -> npt.NDArray[Any]:
    cloud = decode_cloud(data)
    return unpacked(CloudLayout.of([cloud]), cloud)[0]


def made(count: int = 9, step: int | None = None, **kinds: tuple[int, str]) -> npt.NDArray[Any]:
    fields = XYZ | kinds
    end = max(at + int(kind[-1]) for at, kind in fields.values())
    points = np.zeros(count, dtype(step or end, fields))
    points["x"] = np.arange(count)
    return points


@pytest.mark.parametrize("name", DRIVERS)
@pytest.mark.parametrize("stamp_ns", [STAMP_NS, 2_000_000_000_999_999_999])
def test_points_and_times_are_those_of_the_driver(name: str, stamp_ns: int) -> None:
    sent = DRIVERS[name](RNG(1), stamp_ns=stamp_ns)
    cloud = decode(sent)
    layout = CloudLayout.of([cloud])
    points, end_ns = unpacked(layout, cloud)
    assert cloud.header.stamp_ns == stamp_ns
    for axis, field in enumerate(("x", "y", "z")):
        np.testing.assert_array_equal(points["xyz"][:, axis], sent.points[field])
    ring = "line" if "line" in (sent.points.dtype.names or ()) else "ring"
    np.testing.assert_array_equal(points["ring"], sent.points[ring])
    assert points["ring"].dtype == "<u2"
    np.testing.assert_array_equal(points["intensity"], sent.points["intensity"])
    assert sent.t_ns is not None
    assert np.abs(stamp_ns + times_of(points, end_ns) - sent.t_ns).max() <= 500
    assert abs(stamp_ns + end_ns - int(sent.t_ns.max())) <= 500
    begins_with_stamp = begin_ns(end_ns, points) == 0
    assert begins_with_stamp == (name not in ("velodyne", "robosense"))


def test_further_fields_are_columns_by_their_names() -> None:
    layout = CloudLayout.of([decode(ouster(RNG(1)))])
    assert columns_of(layout) == {
        "xyz": "f43", "intensity": "f4", "ring": "u2", "t_offset": "u4", "reflectivity": "u2",
        "ambient": "u2", "range": "u4",
    }  # fmt: skip
    assert columns_of(CloudLayout.of([decode(livox(RNG(1)))])) == {
        "xyz": "f43", "intensity": "u1", "ring": "u2", "t_offset": "u4", "tag": "u1",
    }  # fmt: skip


def test_what_a_cloud_lacks_is_not_made_up() -> None:
    points = made()
    assert columns_of(CloudLayout.of([decode_cloud(encode_cloud(points))])) == {"xyz": "f43"}
    np.testing.assert_array_equal(converted(encode_cloud(points))["xyz"][:, 0], points["x"])


def test_one_time_for_all_points_is_no_time() -> None:
    points = made(timestamp=(12, "f8"))
    points["timestamp"] = STAMP_NS / 1e9
    cloud = decode_cloud(encode_cloud(points))
    layout = CloudLayout.of([cloud])
    assert columns_of(layout) == {"xyz": "f43", "timestamp": "f8"}
    np.testing.assert_array_equal(unpacked(layout, cloud)[0]["timestamp"], points["timestamp"])
    other = made(timestamp=(12, "f8"))
    other["timestamp"] = STAMP_NS / 1e9 + np.arange(9) * 0.01
    both = [cloud, decode_cloud(encode_cloud(other))]
    assert "t_offset" in columns_of(CloudLayout.of(both))


@pytest.mark.parametrize(
    ("kind", "values", "expected_ns"),
    [
        ("f4", np.arange(9) * 0.01, np.arange(9) * 10_000_000),
        ("f4", np.arange(9) * 10.0, np.arange(9) * 10_000_000),  # ms
        ("f4", np.arange(9) * 1e4, np.arange(9) * 10_000_000),  # us
        ("f8", np.arange(9) * 1e7, np.arange(9) * 10_000_000),  # ns
        ("f8", (STAMP_NS // 1000 + np.arange(9) * 10_000).astype(float), None),  # us since 1970
        ("f8", 1234.5 + np.arange(9) * 0.01, np.arange(9) * 10_000_000),  # of another clock
        ("u4", np.arange(9) * 10_000_000, np.arange(9) * 10_000_000),
        ("i4", np.arange(9) * 10_000_000, np.arange(9) * 10_000_000),
    ],
)
def test_units_of_time(kind: str, values: Any, expected_ns: Any) -> None:
    points = made(time=(12, kind))
    points["time"] = values
    expected = np.arange(9) * 10_000_000 if expected_ns is None else expected_ns
    offsets = converted(encode_cloud(points))["t_offset"].astype(np.int64)
    assert np.abs(offsets - expected).max() < 1000, offsets


@pytest.mark.parametrize("name", ["ouster", "hesai", "velodyne"])
def test_a_point_far_behind_the_others_does_not_end_the_sweep(name: str) -> None:
    clouds = [DRIVERS[name](RNG(seed)) for seed in range(2)]
    layout = CloudLayout.of([decode(clouds[0])])
    usual = layout.pack(decode(clouds[1])).end_ns
    times = {"ouster": "t", "hesai": "timestamp", "velodyne": "time"}[name]
    clouds[1].points[times][3] += {"ouster": 10**9, "hesai": 1.0, "velodyne": 1.0}[name]
    late = decode(replace(clouds[1], data=encode_cloud(clouds[1].points)))
    points, end_ns = unpacked(layout, late)
    assert abs(end_ns - usual) < 1000 and points["t_offset"][3] == NO_TIME


def test_points_without_a_time_have_none() -> None:
    sent = hesai(RNG(2))
    sent.points["timestamp"][::7] = 0  # not hit
    sent.points["timestamp"][3] = np.nan
    sent.points["timestamp"][4] += 1e6
    offsets = converted(encode_cloud(sent.points))["t_offset"]
    unknown = np.zeros(len(offsets), bool)
    unknown[::7] = unknown[3] = unknown[4] = True
    np.testing.assert_array_equal(offsets == NO_TIME, unknown)
    assert sent.t_ns is not None
    there = STAMP_NS + offsets[~unknown].astype(np.int64)
    assert np.abs(there - sent.t_ns[~unknown]).max() < 500


def test_points_without_a_time_of_another_clock_have_none() -> None:
    points = made(timestamp=(12, "f8"))
    points["timestamp"] = 1234.5 + np.arange(9) * 0.01
    points["timestamp"][[0, 4]] = 0
    offsets = converted(encode_cloud(points))["t_offset"].astype(np.int64)
    assert (offsets == NO_TIME).nonzero()[0].tolist() == [0, 4]
    assert abs(offsets[1]) < 10 and abs(offsets[8] - 70_000_000) < 1000


def test_the_time_base_of_livox_may_differ_from_the_stamp() -> None:
    for ahead_ns in (-2000, 3_000_000):
        sent = livox(RNG(1), ahead_ns=ahead_ns)
        cloud = decode(sent)
        points, end_ns = unpacked(CloudLayout.of([cloud]), cloud)
        np.testing.assert_array_equal(STAMP_NS + times_of(points, end_ns), sent.t_ns)
    layout = CloudLayout.of([decode(livox(RNG(1)))])
    for ahead_ns in (0, 700, 0):  # from cloud to cloud
        points, _ = unpacked(layout, decode(livox(RNG(1), ahead_ns=ahead_ns)))
        assert int(points["t_offset"][1]) == 140_000 + ahead_ns
    other = decode(livox(RNG(1), ahead_ns=-1_600_000_000_000_000_000))  # a clock of its own
    points, end_ns = unpacked(CloudLayout.of([other]), other)
    assert (begin_ns(end_ns, points), int(points["t_offset"][1])) == (0, 140_000)


@given(
    st.lists(st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"]), max_size=6),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from([(1, 12), (3, 4), (4, 3)]),
    st.integers(0, 9),
    st.randoms(use_true_random=False),
)
def test_any_layout_gives_the_same_values(
    kinds: Sequence[str],
    gap: int,
    is_bigendian: bool,
    size: tuple[int, int],
    padding: int,
    rng: random.Random,
) -> None:
    """Order, odd offsets, padding of points and rows, and byte order, against numpy."""
    fields = [
        ("x", "f4"),
        ("y", "f4"),
        ("z", "f4"),
        *((f"extra_{n}", k) for n, k in enumerate(kinds)),
    ]
    rng.shuffle(fields)
    at, places = gap, {}
    for name, kind in fields:
        places[name] = (at, kind)
        at += int(kind[1]) + rng.choice((0, 0, 1, 3))
    order = ">" if is_bigendian else "<"
    step = at + gap
    layout = np.dtype(
        {
            "names": list(places), "offsets": [a for a, _ in places.values()],
            "formats": [order + k for _, k in places.values()], "itemsize": step,
        }
    )  # fmt: skip
    rows, width = size
    raw = bytes(rng.getrandbits(8) for _ in range(rows * width * step))
    points = np.frombuffer(raw, layout)
    row_step = width * step + padding
    data = b"".join(
        raw[row * width * step : (row + 1) * width * step] + bytes(padding) for row in range(rows)
    )
    native = points.astype(points.dtype.newbyteorder("<"))
    message = encode_cloud(
        native, height=rows, width=width, is_bigendian=is_bigendian, data=data,
        row_step=row_step, fields=fields_of(points.view(layout.newbyteorder("<"))),
    )  # fmt: skip
    found = converted(message)
    for axis, name in enumerate(("x", "y", "z")):
        assert found["xyz"][:, axis].tobytes() == points[name].astype("<f4").tobytes()
    for number, kind in enumerate(kinds):
        name = f"extra_{number}"
        assert found[name].tobytes() == points[name].astype("<" + kind).tobytes()


def test_fields_of_several_values_and_strange_names() -> None:
    kinds = {**XYZ, "Normal.X": (12, "f4"), "2nd": (16, "u1")}
    points = np.zeros(3, dtype(26, kinds))
    fields = (*fields_of(points), PointField("cov", 17, 2, 9), PointField("_", 25, 2, 0))
    points.view(np.uint8).reshape(3, 26)[:, 17:26] = np.arange(9)
    found = converted(encode_cloud(points, fields=fields))
    assert found.dtype.names == ("xyz", "normal_x", "f_2nd", "cov")
    np.testing.assert_array_equal(found["cov"], np.tile(np.arange(9), (3, 1)))


def test_more_exact_positions_stay_so() -> None:
    points = np.zeros(3, dtype(24, {"x": (0, "f8"), "y": (8, "f8"), "z": (16, "f8")}))
    points["x"] = 100.000000123
    found = converted(encode_cloud(points))
    assert found["xyz"].dtype == "<f8"
    np.testing.assert_array_equal(found["xyz"][:, 0], points["x"])
    whole = np.zeros(3, dtype(6, {"x": (0, "i2"), "y": (2, "i2"), "z": (4, "i2")}))
    whole["y"] = -300
    assert converted(encode_cloud(whole))["xyz"][:, 1].tolist() == [-300.0] * 3


def test_a_point_step_of_zero_follows_from_the_data() -> None:
    points = made(5, step=20)
    np.testing.assert_array_equal(
        converted(encode_cloud(points, point_step=0, row_step=0))["xyz"][:, 0], points["x"]
    )


@pytest.mark.parametrize("count", [0, 1])
def test_small_clouds(count: int) -> None:
    first = decode(velodyne(RNG(1)))
    layout = CloudLayout.of([first])
    cloud = decode(velodyne(RNG(1), count=count))
    points, end_ns = unpacked(layout, cloud)
    assert len(points) == count
    assert end_ns == (-100_000_001 if count else 0)  # -0.1 as f4
    assert not points["t_offset"].any()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"data": bytes(50)}, "has 50 bytes of 1 x 9 points of 12"),
        ({"height": 0, "width": 9}, "has 108 bytes of 0 x 9"),
        ({"point_step": 11}, "end at byte 12, a point at 11"),
        ({"height": 3, "width": 3, "row_step": 35}, "has 35 bytes"),
        ({"height": 1 << 16, "width": 1 << 16}, "more than"),
        ({"fields": (PointField("x", 0, 9),)}, "datatype 9"),
        ({"fields": (PointField("x", 4_000_000_000, 7),)}, "end at byte 4000000004"),
        ({"fields": (PointField("x", 0, 7, 4_000_000_000),)}, "end at byte 16000000000"),
        (
            {"fields": (PointField("x", 0, 7), PointField("y", 4, 7))},
            "no field z; its fields: x, y",
        ),
        ({"fields": (PointField("x", 0, 7),) * 2}, "two fields"),
        ({"fields": ()}, "no field x; its fields: none"),
    ],
)
def test_contradictions_are_named(more: dict[str, Any], text: str) -> None:
    data = encode_cloud(made(), **more)
    with pytest.raises(FormatError, match=text):
        CloudLayout.of([decode_cloud(data)])


def test_a_cloud_of_other_fields_is_refused() -> None:
    layout = CloudLayout.of([decode_cloud(encode_cloud(made(a=(12, "u2"))))])
    for points, text in (
        (made(), "has no field 'a'"),
        (made(a=(12, "u2"), b=(14, "u1")), "has a new field 'b'"),
        (made(a=(12, "f4")), "is f4, and was u2"),
    ):
        with pytest.raises(StreamChangedError, match=text):
            layout.pack(decode_cloud(encode_cloud(points)))
    moved = made(a=(16, "u2"))
    moved["a"] = 7
    assert unpacked(layout, decode_cloud(encode_cloud(moved)))[0]["a"].tolist() == [7] * 9


def test_times_of_several_values_are_refused() -> None:
    points = made(step=20, t=(12, "u4"))
    points["t"] = np.arange(9) * 1000
    layout = CloudLayout.of([decode_cloud(encode_cloud(points))])
    two = (*fields_of(points)[:3], PointField("t", 12, 6, 2))
    with pytest.raises(StreamChangedError, match="field 't' has 2 values"):
        layout.pack(decode_cloud(encode_cloud(points, fields=two)))


def test_livox_messages_that_are_cut_or_lie() -> None:
    data = livox(RNG(1), count=3).data
    for end in range(4, len(data)):
        with pytest.raises(FormatError, match="livox"):
            decode_livox(LIVOX, data[:end])
    at = data.index((3).to_bytes(4, "little"), 30)
    with pytest.raises(FormatError, match="3 points, where the message says 4"):
        decode_livox(LIVOX, data[:at] + b"\4" + data[at + 1 :])


def mutate(data: bytes, rng: random.Random) -> bytes:
    mutated = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if len(mutated) < 4:
            break
        match rng.randrange(4):
            case 0:
                mutated[rng.randrange(len(mutated))] = rng.randrange(256)
            case 1:
                at = 4 * rng.randrange(len(mutated) // 4)
                value = rng.choice((0, 1, 0x7F, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF))
                mutated[at : at + 4] = value.to_bytes(4, "little")
            case 2:
                del mutated[rng.randrange(len(mutated) + 1) :]
            case _:
                at = rng.randrange(len(mutated))
                mutated[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(mutated)


def attack(seed: int, rounds: int = 100) -> None:
    """Mutated clouds are converted as far as they are clouds, or name a fault."""
    rng = random.Random(seed)
    name = rng.choice(sorted(DRIVERS))
    size = {"columns": 3} if name == "ouster" else {"count": 40}
    sent = DRIVERS[name](RNG(seed), **size)
    first = decode(sent)
    known = CloudLayout.of([first])
    for _ in range(rounds):
        try:
            cloud = decode(replace(sent, data=mutate(sent.data, rng)))
            own = CloudLayout.of([cloud])
            points, end_ns = unpacked(own, cloud)
            assert len(points) == len(cloud.data) == cloud.rows * cloud.columns
            assert begin_ns(end_ns, points) <= 0
            known.pack(cloud)
        except (FormatError, StreamChangedError) as error:
            assert len(str(error)) < 600


def test_mutated_clouds_end_nothing() -> None:
    for seed in range(10):
        attack(seed)


@pytest.mark.campaign(weight=30, least=1000)
def test_many_mutated_clouds_end_nothing(campaign: Campaign) -> None:
    """Each seed mutates 100 clouds: 100,000 at least."""
    for seed in campaign.seeds():
        attack(seed)
