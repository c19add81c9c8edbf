"""``session:FILE.vrs#SENSOR``: a packed session gives what the session gives, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Driver, Item, Lost, Sample
from drivers.kit.packed_source import PackedSource
from drivers.kit.runner import make_driver
from drivers.kit.session_source import SessionSource
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.bus.wire import Kind
from recorder.codecs.raw_pixels import RawPixels
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import SourceError
from recorder.formats.vrs import VrsReader
from recorder.session.vrs.files import map_vrs_streams
from tests.formats.vrs.foreign import write_foreign
from tests.recording.writer.vrs_session import Recording
from tests.session.build import (
    full_session,
    gnss_spec,
    imu_spec,
    raw_camera_spec,
    video_camera_spec,
)
from tests.support.devices import causes, play_out, states


def odd_spec() -> StreamSpec:
    """A stream with every type of values, small ones and blocks."""
    types = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
    small = [ChannelSpec(f"small_{kind}", "raw", kind, (2, 3)) for kind in types]
    large = [ChannelSpec(f"large_{kind}", "raw", kind, (1100, 5)) for kind in types]
    joint = ChannelSpec("joint", "lzma", "u2", (4,))
    scalar = ChannelSpec("scalar", "raw", "i4", ())
    return StreamSpec("odd", (*small, *large, joint, scalar), rate_hz=100.0)


def odd_content(count: int) -> dict[str, Any]:
    values = np.random.default_rng(5)
    return {
        channel.name: np.frombuffer(
            values.bytes(count * channel.sample_bytes), channel.np_dtype
        ).reshape(count, *channel.shape)
        for channel in odd_spec().channels
    }


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = full_session(tmp_path_factory.mktemp("root") / "drive", 0.5)
    builder.add(video_camera_spec("video"), count=12)
    builder.add(raw_camera_spec("raw", RawPixels(10, "RGGB")), count=3)
    builder.add(gnss_spec("gnss"), 1.0)
    builder.add(odd_spec(), count=9, data=odd_content(9))
    builder.add(imu_spec("gappy"), seq=[0, 1, 2, 5, 6, 7], sensor="gappy")
    builder.lose("gappy", first_seq=3, last_seq=4)
    builder.lose("gappy", first_seq=8, last_seq=9)
    builder.lose("gappy", first_seq=3, last_seq=None, count=None)
    return builder.close()


@pytest.fixture(scope="module")
def packed(session: Path) -> Path:
    (result,) = finalize(session, [ArchiveRequest("vrs", {"compression": "zstd"})])
    return result.files[0]


def make(path: Path, sensor: str, name: str = "", pace: str = "max") -> Driver:
    entry = {"name": name or sensor, "scheme": "session", "address": f"{path}#{sensor}"}
    return make_driver(CameraDriver, entry | {"options": {}, "pace": pace})


def declared(driver: Driver) -> dict[str, StreamSpec]:
    """Declarations by name, with samples that were compressed together declared as raw.

    So does the packer for a session without ``session.vrs``.
    """
    return {
        spec.name: replace(
            spec,
            channels=tuple(
                replace(c, format="raw" if c.format == "lzma" else c.format) for c in spec.channels
            ),
        )
        for spec in driver.open()
    }


def flatten(items: Iterable[Item]) -> dict[str, dict[str, list[Any]]]:
    """By stream and channel the values of each sample; with stamps and device times."""
    found: dict[str, dict[str, list[Any]]] = {}
    for item in items:
        if not isinstance(item, Sample):
            continue
        rows = found.setdefault(item.stream, {})
        rows.setdefault("t_ns", []).extend(item.t_ns.tolist())
        if item.t_dev_ns is not None:
            rows.setdefault("t_dev_ns", []).extend(item.t_dev_ns.tolist())
        for name, values in item.data.items():
            rows.setdefault(name, []).extend(
                bytes(each) if isinstance(values, list) else np.asarray(each).tobytes()
                for each in values
            )
    return found


@pytest.mark.parametrize("pace", ["max", "realtime"])
def test_every_sensor_plays_as_from_its_session(session: Path, packed: Path, pace: str) -> None:
    with VrsReader(packed) as vrs:
        names = set(map_vrs_streams({each.id: each.tags for each in vrs.streams.values()}))
    for sensor in ("camera", "lidar", "radar", "imu", "video", "raw", "gnss", "odd", "gappy"):
        theirs, ours = make(session, sensor, "new"), make(packed, sensor, "new", pace)
        assert isinstance(theirs, SessionSource) and isinstance(ours, PackedSource)
        assert declared(ours) == declared(theirs)
        assert ours.origin_ns == theirs.origin_ns
        ours.close()
        theirs.close()
        (expected, _), (found, error) = play_out(theirs), play_out(ours)
        assert error is None
        assert flatten(found) == flatten(expected), sensor
        ends = [int(np.max(item.t_ns)) for item in found]
        assert ends == sorted(ends) or sensor == "gappy"
    assert names >= {"camera", "lidar", "lidar_imu", "video", "raw", "odd", "gappy"}


def test_losses_are_those_of_the_session(session: Path, packed: Path) -> None:
    items, _ = play_out(make(packed, "gappy"))
    expected, _ = play_out(make(session, "gappy"))
    assert sorted(causes(items), key=str) == sorted(causes(expected), key=str)
    counted = {lost.count for lost in items if isinstance(lost, Lost)}
    assert counted == {2, None}


def test_a_cut_file_plays_what_is_whole(packed: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.vrs"
    cut.write_bytes(packed.read_bytes()[: packed.stat().st_size * 2 // 3])
    items, error = play_out(make(cut, "imu"))
    whole, _ = play_out(make(packed, "imu"))
    assert error is None and causes(items) == [("truncated", None)]
    found, expected = flatten(items)["imu"], flatten(whole)["imu"]
    assert 0 < len(found["acc"]) < len(expected["acc"])
    assert found["acc"] == expected["acc"][: len(found["acc"])]


def test_what_is_no_packed_sensor_is_one_error(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no sensor 'none'; the sensors are: camera, lidar"):
        make(packed, "none").open()
    foreign = write_foreign(tmp_path / "other.vrs")
    with pytest.raises(SourceError, match="is no packed session of the recorder"):
        make(foreign, "imu").open()
    (tmp_path / "text").write_text("text")
    with pytest.raises(SourceError, match="4 bytes are no VRS file"):
        make(tmp_path / "text", "imu").open()


def test_the_drivers_states_are_played(tmp_path: Path) -> None:
    recording = Recording(tmp_path, ["camera"])
    recording.declare()
    recording.tell(Kind.STATE, "camera", gain=1)
    recording.data("camera", 2)
    recording.tell(Kind.STATE, "camera", gain=7)
    recording.data("camera", 1)
    path = recording.end()
    (result,) = finalize(path, [ArchiveRequest("vrs", {})])
    items, error = play_out(make(result.files[0], "camera"))
    assert error is None
    kinds = [type(item).__name__ for item in items]
    assert kinds == ["State", "Sample", "State", "Sample"]
    assert states(items) == [{"gain": 1}, {"gain": 7}]
    first, sample = items[:2]
    assert isinstance(sample, Sample)
    assert first.t_ns == sample.t_ns[0]  # a state before the first sample comes with it
