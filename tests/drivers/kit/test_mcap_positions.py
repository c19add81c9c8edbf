"""``mcap:PATH[#TOPIC]`` in the driver gnss: positions in recordings of others, and in ours."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foxglove import messages as foxglove

from drivers.gnss.driver import GnssDriver
from drivers.kit.driver import Driver, Item
from drivers.kit.runner import make_driver
from recorder.common.errors import FormatError, SourceError
from recorder.formats.bags.bag import Bag
from recorder.formats.bags.messages import (
    decode_json_position,
)
from recorder.perception.recordings import sensors_of
from tests.formats.bags.kit import (
    SECOND,
    START_NS,
    STORE,
    Sent,
    cdr,
    fox_time,
    header,
    proto,
    write_mcap,
)
from tests.support.devices import column, device_times, losses, play, samples, times

STEP_NS = 100_000_000
PLACE = (48.123456789012, -11.76543210987, 512.375)
ENU = (4.0, 0.5, -0.25, 0.5, 9.0, 1.5, -0.25, 1.5, 16.0)
NED = [[9.0, 0.5, -1.5], [0.5, 4.0, 0.25], [-1.5, 0.25, 16.0]]
"""The same covariance: north and east change places, down is minus up."""


def ros_fix(topic: str, log_ns: int, status: int = 0, kind: int = 3) -> Sent:
    """A ``sensor_msgs/msg/NavSatFix``, serialized by rosbags; its stamp is 2 ms before."""
    state = STORE.types["sensor_msgs/msg/NavSatStatus"](status, 1)
    return cdr(
        topic, "sensor_msgs/msg/NavSatFix", log_ns, header=header(log_ns - 2_000_000, "antenna"),
        status=state, latitude=PLACE[0], longitude=PLACE[1], altitude=PLACE[2],
        position_covariance=np.array(ENU), position_covariance_type=kind,
    )  # fmt: skip


def fox_fix(topic: str, log_ns: int, **more: Any) -> Sent:
    """A ``foxglove.LocationFix``, serialized by foxglove-sdk."""
    fix = foxglove.LocationFix(
        timestamp=fox_time(log_ns), frame_id="antenna", latitude=PLACE[0], longitude=PLACE[1],
        altitude=PLACE[2], **more,
    )  # fmt: skip
    return proto(topic, fix, log_ns)


def foxglove_values() -> dict[str, Any]:
    """What a ``foxglove.LocationFix`` may have besides a place."""
    known = foxglove.LocationFixPositionCovarianceType.Known
    velocity = foxglove.Vector3(x=-2.0, y=1.0, z=0.25)
    return {
        "position_covariance": list(ENU), "position_covariance_type": known, "velocity": velocity,
    }  # fmt: skip


SCHEMA = (
    b'{"properties": {"timestamp": {}, "t_dev": {}, "pos": {}, "vel": {}, "fix": {}, "cov": {}}}'
)
VALUES = {
    "pos": list(PLACE), "vel": [1.5, -2.25, None], "fix": 4, "cov": [None] * 9, "sats": 17,
    "quality": 5, "utc": START_NS, "t_dev": 1_384_000_000_000_000_000,
}  # fmt: skip


def json_fix(topic: str, log_ns: int, values: Mapping[str, Any] = VALUES) -> Sent:
    """A sample of a position stream in JSON, as the recorder's archives write it."""
    stamp = {"sec": log_ns // SECOND, "nsec": log_ns % SECOND}
    data = json.dumps({"timestamp": stamp, "seq": 0, **values}).encode()
    return Sent(topic, "recorder.gnss", "json", data, log_ns, SCHEMA)


def played(path: Path, topic: str = "") -> tuple[Any, list[Item]]:
    return play(opened(path, topic))


def opened(path: Path, topic: str = "") -> Driver:
    address = f"{path}#{topic}" if topic else str(path)
    entry = {"name": "gnss", "scheme": "mcap", "address": address, "options": {}, "pace": "max"}
    return make_driver(GnssDriver, entry)


def joined(items: list[Item], channel: str) -> Any:
    assert len(samples(items)) == len(items)
    return column(items, channel)


def test_positions_of_ros_keep_values_stamps_and_covariance(tmp_path: Path) -> None:
    sent = [ros_fix("/gps/fix", START_NS + n * STEP_NS, -1 if n == 3 else 0) for n in range(20)]
    spec, items = played(write_mcap(tmp_path / "a.mcap", sent))
    assert [c.name for c in spec.channels] == ["pos", "fix", "cov"]
    assert (spec.rate_hz, spec.device_clock, spec.finite) == (10.0, False, True)
    pos = joined(items, "pos")
    assert pos.dtype == np.float64 and pos[0].tolist() == list(PLACE)
    assert np.isnan(pos[3]).all() and np.isfinite(np.delete(pos, 3, 0)).all()
    assert joined(items, "fix").tolist() == [3] * 3 + [0] + [3] * 16
    assert joined(items, "cov")[0].tolist() == NED
    assert times(items).tolist() == [START_NS - 2_000_000 + n * STEP_NS for n in range(20)]
    assert spec.settings["mcap_frame"] == "antenna"


def test_a_covariance_that_ros_knows_later_is_recorded(tmp_path: Path) -> None:
    """A receiver that has no fix yet knows no covariance; the first messages declare the stream."""
    sent = [ros_fix("/gps/fix", START_NS + n * STEP_NS, kind=0 if n < 60 else 3) for n in range(61)]
    _, items = played(write_mcap(tmp_path / "a.mcap", sent))
    cov = joined(items, "cov")
    assert np.isnan(cov[:60]).all() and cov[60].tolist() == NED


def test_a_status_that_is_not_known_says_nothing_about_the_position(tmp_path: Path) -> None:
    """sensor_msgs/NavSatStatus: STATUS_UNKNOWN is -2, the default since ROS 2 Rolling."""
    sent = [ros_fix("/gps/fix", START_NS + n * STEP_NS, status=-2 + n) for n in range(5)]
    _, items = played(write_mcap(tmp_path / "a.mcap", sent))
    assert joined(items, "fix").tolist() == [3, 0, 3, 3, 3]
    assert joined(items, "pos")[0].tolist() == list(PLACE)
    assert np.isnan(joined(items, "pos")[1]).all()


def test_positions_of_foxglove_keep_velocity_and_covariance(tmp_path: Path) -> None:
    more = foxglove_values()
    sent = [
        fox_fix("/place", START_NS + n * STEP_NS, **(more if n % 2 == 0 else {})) for n in range(4)
    ]
    spec, items = played(write_mcap(tmp_path / "a.mcap", sent))
    assert [c.name for c in spec.channels] == ["pos", "fix", "vel", "cov"]
    assert joined(items, "pos").tolist() == [list(PLACE)] * 4
    assert joined(items, "vel")[0].tolist() == [1.0, -2.0, -0.25]
    assert joined(items, "cov")[2].tolist() == NED
    assert np.isnan(joined(items, "vel")[1]).all() and np.isnan(joined(items, "cov")[1]).all()


def test_positions_of_this_recorder_keep_everything(tmp_path: Path) -> None:
    sent = [json_fix("/gnss", START_NS + n * STEP_NS) for n in range(3)]
    sent += [fox_fix("/gnss/fix", START_NS + n * STEP_NS) for n in range(3)]
    path = write_mcap(tmp_path / "a.mcap", sorted(sent, key=lambda each: each.log_ns))
    spec, items = played(path)  # the topic with everything is chosen
    assert spec.settings["mcap_topic"] == "/gnss"
    names = ["pos", "fix", "vel", "cov", "sats", "quality", "utc"]
    assert [c.name for c in spec.channels] == names and spec.device_clock
    for name in ("fix", "sats", "quality", "utc"):
        column = joined(items, name)
        assert column.dtype == spec.channel(name).np_dtype
        assert column.tolist() == [VALUES[name]] * 3
    assert joined(items, "pos").tolist() == [list(PLACE)] * 3
    assert joined(items, "vel")[0][:2].tolist() == [1.5, -2.25] and math.isnan(
        joined(items, "vel")[0][2]
    )
    assert device_times(items).tolist() == [VALUES["t_dev"]] * 3
    assert played(path, "/gnss/fix")[0].settings["mcap_topic"] == "/gnss/fix"
    with Bag(path) as bag:
        found = sensors_of(bag)
    assert [(s.name, s.driver, s.topic) for s in found.sensors] == [("gnss", "gnss", "/gnss")]
    assert found.left_out == {"/gnss/fix": "its positions are those of /gnss"}


def test_two_receivers_have_to_be_chosen_from(tmp_path: Path) -> None:
    sent = [ros_fix("/front/fix", START_NS), ros_fix("/rear/fix", START_NS)]
    path = write_mcap(tmp_path / "a.mcap", sent)
    with pytest.raises(SourceError, match=r"select a topic, as in #/front/fix"):
        opened(path).open()
    with Bag(path) as bag:
        names = {s.topic: (s.name, s.driver) for s in sensors_of(bag).sensors}
    assert names == {"/front/fix": ("front", "gnss"), "/rear/fix": ("rear", "gnss")}


def test_a_damaged_message_is_a_counted_loss(tmp_path: Path) -> None:
    sent = [json_fix("/gnss", START_NS + n * STEP_NS) for n in range(4)]
    sent[2] = json_fix("/gnss", sent[2].log_ns, {"pos": [1, 2], "fix": 3})
    _, items = played(write_mcap(tmp_path / "a.mcap", sent))
    (lost,) = losses(items)
    assert (lost.cause, lost.count) == ("corrupt", 1)
    assert "pos is not a list of 3 numbers" in lost.detail["reason"]
    assert len(times(items)) == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pos": [1, 2, 3]}, "has no fix"),
        ({"fix": 3}, "has no pos"),
        ({"pos": [1, 2, 3], "fix": 256}, "fix is not a number from 0 to 255"),
        ({"pos": [1, 2, 3], "fix": -1}, "fix is not a number from 0 to 255"),
        ({"pos": [1, 2, 3], "fix": 3, "sats": 0.5}, "not a whole number"),
        ({"pos": "here", "fix": 3}, "pos is not a list"),
        ({"pos": [1, 2, 3], "fix": 3, "cov": [1] * 8}, "cov is not a list of 9 numbers"),
    ],
)
def test_what_is_wrong_in_json_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode_json_position(json_fix("/gnss", START_NS, values).data)
