"""``bag:PATH[#TOPIC]``: the same messages in files of MCAP and SQLite play alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Driver, Item, Sample
from drivers.kit.runner import make_driver
from drivers.xsens.driver import XsensDriver
from recorder.config.loading import RECORDING_SCHEMES
from recorder.recording.supervisor.driver_registry import available_drivers, driver_schema
from tests.drivers.ouster import rig
from tests.formats.bags.kit import (
    START_NS,
    Sent,
    compressed,
    imu,
    jpeg,
    turn,
    write_bag,
    write_mcap,
    write_sqlite,
)
from tests.support.devices import play


def drive() -> list[Sent]:
    sent = []
    for at in range(20):
        log_ns = START_NS + at * 10_000_000
        sent.append(compressed("/front", jpeg(at), log_ns))
        sent.append(imu("/imu", log_ns + 1, (at, 0, 9.8), (0, at, 0), turn(at / 9)))
    return sent


def write_folder(path: Path, sent: list[Sent]) -> Path:
    return write_bag(path.with_suffix(""), [sent[:7], sent[7:]])


def contents(kind: type[Driver], scheme: str, path: Path, topic: str) -> list[Any]:
    address = f"{path}#{topic}"
    entry = {"name": "s", "scheme": scheme, "address": address, "options": {}, "pace": "max"}
    spec, items = play(make_driver(kind, entry))
    return [spec, *map(flat, items)]


def flat(item: Item) -> Any:
    assert isinstance(item, Sample)
    data = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in item.data.items()}
    return item.t_ns.tolist(), data


@pytest.mark.parametrize("write", [write_mcap, write_sqlite, write_folder])
@pytest.mark.parametrize(("kind", "topic"), [(CameraDriver, "/front"), (XsensDriver, "/imu")])
def test_a_bag_plays_as_the_same_messages_in_mcap(
    tmp_path: Path, write: Callable[[Path, list[Sent]], Path], kind: type[Driver], topic: str
) -> None:
    path = write(tmp_path / "drive.bag", drive())
    wanted = contents(kind, "mcap", write_mcap(tmp_path / "drive.mcap", drive()), topic)
    assert contents(kind, "bag", path, topic) == wanted
    assert len(wanted) == (21 if topic == "/front" else 2)


def test_packets_of_a_lidar_play_from_sqlite(tmp_path: Path) -> None:
    sent = rig.ouster_messages(info := rig.make_info(), rig.flat(rig.capture(info, range(3))))
    wanted = rig.play(rig.driver_for("mcap", write_mcap(tmp_path / "a.mcap", sent)))
    found = rig.play(rig.driver_for("bag", write_sqlite(tmp_path / "a.db3", sent)))
    rig.assert_same_items(found[1], wanted[1])
    assert len(wanted[1]) == 3


@pytest.mark.campaign
def test_each_driver_that_plays_mcap_plays_bags() -> None:
    schemas = [driver_schema(name) for name in available_drivers()]
    bags = [schema.name for schema in schemas if "bag" in schema.schemes]
    assert bags == [schema.name for schema in schemas if "mcap" in schema.schemes]
    assert {"camera", "can", "gnss", "ouster", "xsens"} <= set(bags)
    assert {"bag", "mcap"} <= RECORDING_SCHEMES
