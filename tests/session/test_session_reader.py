"""The reading API against sessions of known content."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from recorder.common.errors import FormatError, SessionError
from recorder.session.discovery import find_sessions
from recorder.session.reader import Session, lidar_range_mm
from tests.campaigns import Selector
from tests.session.build import (
    START_MONO_NS,
    START_NS,
    Builder,
    Recorded,
    build_session,
    full_session,
    imu_spec,
    lidar_spec,
    radar_spec,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return full_session(tmp_path_factory.mktemp("root") / "rig")


def test_every_value_reads_back(built: Builder) -> None:
    with Session(built.path) as session:
        assert list(session.streams) == sorted(built.streams)
        for name, made in built.streams.items():
            stream = session.streams[name]
            assert len(stream) == len(made.t_ns)
            np.testing.assert_array_equal(stream.t_ns, made.t_ns)
            assert stream.spec == made.spec
            read = stream.read()
            assert list(read) == [c.name for c in made.spec.channels]
            for channel in made.spec.channels:
                got, put = read[channel.name], made.data[channel.name]
                assert got.dtype == channel.np_dtype and got.shape == put.shape
                if channel.format != "mjpg":
                    np.testing.assert_array_equal(got, put)
                else:  # JPEG is lossy, and the driver's arrays are BGR where roverd's are RGB
                    difference = got.astype(int) - put[..., ::-1].astype(int)
                    assert np.abs(difference).mean() < 12


def test_header(built: Builder) -> None:
    with Session(built.path) as session:
        assert (session.name, session.state, session.recorded) == ("rig", "clean", True)
        assert session.start_ns == START_NS
        last = max(int(s.t_ns[-1]) for s in built.streams.values())
        assert session.end_ns == last + 1_000_000
        assert session.metadata == {"vehicle": "rig-1"}
        assert session.sensors()["lidar"] == ["lidar", "lidar_imu"]
        assert not session.live


def test_times_are_exact_from_t_mono_and_near_from_ts(built: Builder, tmp_path: Path) -> None:
    plain = full_session(tmp_path / "plain", plain=True)
    with Session(built.path) as exact, Session(plain.path) as near:
        np.testing.assert_array_equal(exact.streams["imu"].t_ns, built.streams["imu"].t_ns)
        error = near.streams["imu"].t_ns - built.streams["imu"].t_ns
        assert 0 < np.abs(error).max() <= 240
        assert near.streams["imu"].spec is None
        assert near.start_ns == int(min(s.t_ns[0] for s in near.streams.values()))
        assert near.end_ns == int(max(s.t_ns[-1] for s in near.streams.values()))
        assert (near.state, near.recorded, near.live) == ("clean", False, False)
        assert near.sensors()["lidar"] == ["lidar", "lidar_imu"]


def test_samples_have_the_channels_shapes(built: Builder) -> None:
    with Session(built.path) as session:
        radar = session.streams["radar"]
        sample = radar.sample(-1)
        assert sample["valid"].shape == () and sample["iq"].shape == (8, 2, 4, 128)
        np.testing.assert_array_equal(sample["iq"], built.streams["radar"].data["iq"][-1])
        numbers = radar.sample(3, ["seq", "ts"])
        assert int(numbers["seq"]) == 3 and set(numbers) == {"seq", "ts"}
        lidar = session.streams["lidar"]
        np.testing.assert_array_equal(lidar.t_dev_ns, built.streams["lidar"].t_dev_ns)
        np.testing.assert_array_equal(lidar.seq, np.arange(10))
        assert radar.t_dev_ns is None


@pytest.mark.parametrize("batch", [None, 1, 7, 1000])
def test_iterate_gives_each_sample_once(built: Builder, batch: int | None) -> None:
    with Session(built.path) as session:
        batches = list(session.streams["imu"].iterate(batch, ["acc"], start=3))
        acc = np.concatenate([b.data["acc"] for b in batches])
        np.testing.assert_array_equal(acc, built.streams["imu"].data["acc"][3:])
        times = np.concatenate([b.t_ns for b in batches])
        np.testing.assert_array_equal(times, built.streams["imu"].t_ns[3:])
        assert [b.start for b in batches] == [3 + (batch or 1024) * i for i in range(len(batches))]


def test_merged_iteration_is_in_order_of_time(built: Builder) -> None:
    with Session(built.path) as session:
        items = list(session.iterate())
        stamps = [item.t_ns for item in items]
        assert stamps == sorted(stamps)
        assert len(items) == sum(len(s.t_ns) for s in built.streams.values())
        for name, made in built.streams.items():
            own = [item for item in items if item.stream == name]
            assert [item.index for item in own] == list(range(len(made.t_ns)))
            assert [item.t_ns for item in own] == made.t_ns.tolist()
        some = next(item for item in items if item.stream == "radar" and item.index == 7)
        assert some.data["valid"] == built.streams["radar"].data["valid"][7]
        assert some.data["valid"].shape == ()


def test_merged_iteration_of_an_interval(built: Builder) -> None:
    t0, t1 = START_NS + 200_000_000, START_NS + 400_000_000
    with Session(built.path) as session:
        items = list(session.iterate(["imu", "lidar"], start_ns=t0, end_ns=t1))
    expected = sum(((s.t_ns >= t0) & (s.t_ns < t1)).sum() for s in
                   (built.streams["imu"], built.streams["lidar"]))  # fmt: skip
    assert len(items) == expected > 0
    assert all(t0 <= item.t_ns < t1 for item in items)


def test_lidar_range_goes_on_beyond_rng(built: Builder) -> None:
    data = built.streams["lidar"].data
    with Session(built.path) as session:
        ranges = lidar_range_mm(session.streams["lidar"], 4)
        assert ranges.dtype == np.uint32
        wanted = data["rng"][4].astype(np.int64) + data["rng_far"][4]
        np.testing.assert_array_equal(ranges, wanted)
        assert ranges.max() > 65535
        with pytest.raises(SessionError, match="rng2"):
            lidar_range_mm(session.streams["lidar"], 4, return_=2)


def test_wrong_indices_and_names(built: Builder) -> None:
    with Session(built.path) as session:
        imu = session.streams["imu"]
        for bad in (100, -101):
            with pytest.raises(IndexError, match="of 100"):
                imu.sample(bad)
        for start, stop in ((-1, 5), (5, 4), (0, 101)):
            with pytest.raises(IndexError, match="of 100"):
                imu.read(start, stop)
        with pytest.raises(SessionError, match="no channel 'iq'; its channels: ts"):
            imu.read(0, 1, ["iq"])
        with pytest.raises(SessionError, match="no stream 'gnss'; its streams: camera"):
            session.stream("gnss")


def test_memory_of_iteration_is_a_few_batches(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(radar_spec(), 60.0)  # 20 MB
    builder.close()
    with Session(builder.path) as session:
        next(session.iterate())  # imports, buffers
        tracemalloc.start()
        count = sum(1 for _ in session.iterate())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == 1200
    assert peak < 6e6


# Sessions that grow, were killed, or are damaged


def cut(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size - by)


def open_session(tmp_path: Path, state: str = "recording") -> tuple[Builder, Recorded]:
    builder = build_session(tmp_path / "rig", lidar_spec(), seconds=1.0, state=state)
    made = builder.streams["lidar"]
    return builder, made


@pytest.mark.parametrize("state", ["recording", "sealed"])
@pytest.mark.parametrize("channel", ["ts", "seq", "rng", "rfl_i", "t_col", "nir_i"])
def test_an_open_session_has_the_samples_that_all_channels_hold(
    tmp_path: Path, channel: str, state: str
) -> None:
    """So has one whose disk failed in the middle of a sample."""
    builder, made = open_session(tmp_path, state)
    cut(builder.path / "lidar" / channel, 3)
    with Session(builder.path) as session:
        lidar = session.streams["lidar"]
        assert len(lidar) == 9
        np.testing.assert_array_equal(lidar.read()["rng"], made.data["rng"][:9])
        np.testing.assert_array_equal(lidar.t_ns, made.t_ns[:9])
        assert session.state == state and (session.end_ns is None) == (state == "recording")


def test_a_session_grows_between_refreshes(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "rig", imu_spec(), seconds=1.0, state="recording")
    made = builder.streams["imu"]
    folder = builder.path / "imu"
    whole = {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "meta.json"}
    grown = [0, 1, 37, 38, 100]
    for name in whole:
        (folder / name).write_bytes(b"")
    with Session(builder.path) as session:
        imu = session.streams["imu"]
        for before, count in itertools.pairwise(grown):
            assert len(imu) == before
            for i, (name, data) in enumerate(sorted(whole.items())):
                # every file is somewhere within the next sample, the last one at its end
                size = len(data) // 100
                (folder / name).write_bytes(data[: count * size + (i * 3) % size])
            assert len(imu) == before, "a snapshot does not move"
            session.refresh()
            assert len(imu) == count
            np.testing.assert_array_equal(imu.t_ns, made.t_ns[:count])
            np.testing.assert_array_equal(imu.read()["rot"], made.data["rot"][:count])


def test_live_while_the_lock_is_held(tmp_path: Path) -> None:
    builder, _ = open_session(tmp_path)
    states = []
    with Session(builder.path) as session:
        states.append(session.live)
        with (builder.path / "_recorder" / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            states.append(session.live)
        states.append(session.live)
    assert states == [False, True, False]


@pytest.mark.parametrize("state", ["clean", "recovered"])
def test_a_closed_session_with_a_torn_file_is_an_error(tmp_path: Path, state: str) -> None:
    builder = build_session(tmp_path / "rig", imu_spec(), seconds=1.0, state=state)
    cut(builder.path / "imu" / "acc", 1)
    with Session(builder.path) as session, pytest.raises(FormatError, match="imu/acc"):
        len(session.streams["imu"])


def test_one_broken_stream_leaves_the_others(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig")
    (builder.path / "imu" / "meta.json").write_text('{"ts": 3}')
    with Session(builder.path) as session:
        assert "imu" not in session.streams
        assert "imu/meta.json: ts: a int" in str(session.broken["imu"])
        with pytest.raises(FormatError, match=r"imu/meta\.json"):
            session.stream("imu")
        assert len(session.streams["camera"]) == 30


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ("{", "not JSON"),
        ("[]", "a list, not a mapping"),
        ('{"../x": {}}', "is no name of a file"),
        ('{"ts": {"format": "raw", "type": "x9", "shape": []}}', "type: needs a numpy type"),
        ('{"ts": {"format": "raw", "type": "f8", "shape": [0]}}', "shape: needs a list of sizes"),
        ('{"ts": {"format": "raw", "type": "f8", "shape": [true]}}', "shape: needs"),
        ('{"ts": {"type": "f8", "shape": []}}', "format: needs a text"),
    ],
)
def test_damaged_meta_json(tmp_path: Path, meta: str, message: str) -> None:
    builder = build_session(tmp_path / "rig", imu_spec(), seconds=0.1)
    (builder.path / "imu" / "meta.json").write_text(meta)
    with Session(builder.path) as session:
        assert message in str(session.broken["imu"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2; this recorder reads 1"),
        ({"state": "done"}, "state: 'done' is none of recording, clean"),
        ({"start_ns": "now"}, "start_ns: needs a whole number"),
        ({"start_ns": True}, "start_ns: needs a whole number"),
        ({"name": None}, "name: needs a text"),
        ({"streams": {"imu": {"name": "imu"}}}, "streams.imu: not a stream declaration"),
        ({"streams": {"imu": 3}}, "streams.imu: a int"),
        ({"epochs": {"imu": 3}}, "epochs.imu: a int"),
        ({"sensors": []}, "sensors: needs a mapping"),
    ],
)
def test_damaged_session_json(tmp_path: Path, change: dict[str, object], message: str) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(imu_spec(), 0.1)
    path = builder.close() / "_recorder" / "session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SessionError) as error:
        Session(builder.path)
    assert str(error.value) == f"{path}: {message}" or message in str(error.value)
    assert str(path) in str(error.value)


def test_session_json_cut_at_every_byte_is_one_clear_error(
    tmp_path: Path, select: Selector
) -> None:
    builder = Builder(tmp_path / "rig")
    path = builder.close() / "_recorder" / "session.json"
    whole = path.read_bytes()
    for length in select(range(len(whole)), 60):
        path.write_bytes(whole[:length])
        with pytest.raises(SessionError, match=r"session\.json: is damaged"):
            Session(builder.path)


def test_what_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no such session folder"):
        Session(tmp_path / "nothing")
    with pytest.raises(SessionError, match="is no session"):
        Session(tmp_path)


def test_stamps_that_are_no_times(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "plain", plain=True)
    builder.add(imu_spec(), 0.1)
    for bad in (np.nan, np.inf, 1e300):
        ts = np.arange(10, dtype="<f8") + 1.7e9
        ts[4] = bad
        ts.tofile(builder.path / "imu" / "ts")
        with Session(builder.path) as session, pytest.raises(FormatError, match="ts: sample 4"):
            _ = session.streams["imu"].t_ns


def test_events_leave_out_a_line_that_is_being_written(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.lose("imu", 3, 5)
    builder.lose("imu", 9, 9)
    path = builder.close() / "_recorder" / "events.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    with Session(builder.path) as session:
        assert [e["first_seq"] for e in session.events()] == [3, 9]
        for length in range(first, len(whole)):
            path.write_bytes(whole[:length])
            assert [e["first_seq"] for e in session.events()] == [3]
        path.write_bytes(b"{}\nx\n{}\n")
        with pytest.raises(FormatError, match=r"events.jsonl:2: not JSON"):
            list(session.events())
        path.unlink()
        assert list(session.events()) == []


def test_virtual_sensors_on_request(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig")
    folder = builder.path / "_lidar"
    folder.mkdir()
    entry = {"format": "raw", "type": "f4", "shape": [3], "desc": ""}
    (folder / "meta.json").write_text(json.dumps({"pose": entry}))
    np.ones((4, 3), "<f4").tofile(folder / "pose")
    with Session(builder.path) as session:
        assert "_lidar" not in session.streams
    with Session(builder.path, virtual=True) as session:
        poses = session.streams["_lidar"]
        assert len(poses) == 4 and not poses.has_times
        assert poses.read()["pose"].sum() == 12
        with pytest.raises(SessionError, match="has no times"):
            poses.times()
        assert session.start_ns == START_NS


def test_find_sessions_skips_those_in_the_making(tmp_path: Path) -> None:
    for name in ("b", "a", ".c.tmp"):
        Builder(tmp_path / name)
    (tmp_path / "other").mkdir()
    assert [p.name for p in find_sessions(tmp_path)] == ["a", "b"]
    with pytest.raises(SessionError, match="cannot be listed"):
        find_sessions(tmp_path / "nothing")


def test_monotonic_times_beyond_a_restart_of_the_clock(tmp_path: Path) -> None:
    """t_mono before the session's start (a device's backlog) still maps exactly."""
    builder = build_session(tmp_path / "rig", imu_spec(), seconds=0.1, offset_ns=-50_000_000)
    made = builder.streams["imu"]
    with Session(builder.path) as session:
        np.testing.assert_array_equal(session.streams["imu"].t_ns, made.t_ns)
        assert made.t_ns[0] < START_NS and START_MONO_NS > 0
