"""A satellite receiver in every archive that has a place for positions, and back again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.feather as feather
import pytest
import yaml

from recorder.session.reader import Session
from tests.acceptance.command import assert_nothing_lost, assert_sound, here

PACE = {"source": "sim:", "pace": "max"}
ORIGIN = [-33.9, 151.2, 30.0]
SENSORS: dict[str, Any] = {
    "imu": {"driver": "xsens", **PACE},
    "gnss": {"driver": "gnss", "origin": ORIGIN, **PACE},
    "camera": {"driver": "camera", "width": 64, "height": 48, "fps": 5, **PACE},
}


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four seconds, packed."""
    folder = tmp_path_factory.mktemp("positions")
    config = {
        "version": 1, "storage": {"min_free_gb": 0}, "sensors": SENSORS,
        "finalize": ["mcap", "ncore", "edgefirst", "vrs"], "report": True,
    }  # fmt: skip
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    where = ("--root", folder, "--name", "s", "--duration", 4, "--format", "json")
    ran = here("run", folder / "c.yaml", *where, labels=True)
    assert ran.code == 0, ran.err
    assert_nothing_lost(folder / "s")
    assert_sound(folder / "s")
    return folder / "s"


def column(session: Path, name: str) -> Any:
    with Session(session) as opened:
        stream = opened.streams["gnss"]
        return stream.read(0, len(stream), [name])[name]


def test_edgefirst_has_the_place_of_every_picture(drive: Path) -> None:
    (path,) = (drive / "_archives/edgefirst").rglob("*.arrow")
    places = feather.read_table(path)["location"].to_pylist()
    assert len(places) >= 20
    for latitude, longitude in places:
        assert (latitude, longitude) == pytest.approx(ORIGIN[:2], abs=0.01)
    assert len({tuple(place) for place in places}) > 10  # the vehicle moves


def poses_of(archive: Path) -> Any:
    (path,) = archive.glob("*.json")
    (store,) = json.loads(path.read_text())["component_stores"]
    return store["components"]["poses"]["default"]["generic_meta_data"]


def test_ncore_places_the_world_on_earth_by_the_receiver(drive: Path) -> None:
    """The world's own trajectory fits the receiver's positions within their errors."""
    known = poses_of(drive / "_archives/ncore")["world_global"]
    assert known["positions"] == "gnss" and 0 < known["residual_m"] < 5


def test_ncore_takes_its_trajectory_from_the_receiver(drive: Path, tmp_path: Path) -> None:
    where = ("--to", "ncore", "--option", "ncore.poses=gnss", "--out", tmp_path)
    ran = here("finalize", drive, *where)
    assert ran.code == 0, ran.err
    (path,) = tmp_path.glob("ncore/*.json")
    trajectory = poses_of(path.parent)["trajectory"]
    assert trajectory["source"] == "positions of gnss, orientation of imu"
    assert trajectory["poses"] > 300


def test_the_report_has_a_map_of_it(drive: Path) -> None:
    text = (drive / "report.html").read_text()
    assert "-33.9" in text and "151.2" in text


def test_an_archive_in_mcap_becomes_the_same_stream_again(drive: Path, tmp_path: Path) -> None:
    (path,) = (drive / "_archives/mcap").glob("*.mcap")
    ran = here("import", path, "--root", tmp_path, "--name", "again", "--format", "json")
    assert ran.code == 0, ran.err
    assert ran.result["left_out"]["/gnss/fix"] == "its positions are those of /gnss"
    for name in ("pos", "vel", "cov", "fix", "sats", "quality", "utc", "t_dev"):
        assert np.array_equal(column(tmp_path / "again", name), column(drive, name)), name
