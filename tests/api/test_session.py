"""Opening, pickling and closing sessions; their streams, windows, and losses."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recorder
from recorder.session.summary import summarize
from tests.session.build import (
    START_NS,
    Builder,
    camera_spec,
    full_session,
    imu_spec,
    raw_camera_spec,
    video_camera_spec,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """A session with losses; it must not be written to."""
    builder = Builder(tmp_path_factory.mktemp("api") / "built")
    numbers = [*range(10), *range(13, 40), *range(42, 60)]
    builder.add(imu_spec(), seq=numbers)
    builder.lose("imu", 10, 12, "buffer")
    builder.lose("imu", 40, 41, "network")
    builder.lose("imu", 60, None, "stalled", count=None, duration_ns=5_000_000, estimate=3)
    builder.add(camera_spec(), 0.5)
    builder.close()
    return builder


@pytest.fixture
def session(built: Builder) -> Iterator[recorder.Session]:
    with recorder.open(built.path) as opened:
        yield opened


def test_a_stream_is_what_was_recorded(built: Builder, session: recorder.Session) -> None:
    imu, known = session["imu"], built.streams["imu"]
    assert len(imu) == len(known.t_ns) and imu.kind == "imu"
    assert np.array_equal(imu.t_ns, known.t_ns)
    assert list(imu.channels) == ["acc", "avel", "rot"]
    acc = imu.channels["acc"]
    assert (acc.dtype.str, acc.shape, acc.unit) == ("<f4", (3,), "m/s^2")
    assert imu.rate_hz == summarize_streams(built)["imu"]["rate_hz"]
    assert np.array_equal(imu[5].acc, known.data["acc"][5])
    assert np.array_equal(imu[-1]["avel"], known.data["avel"][-1])
    assert imu[-1].index == len(imu) - 1 and imu[-1].t_ns == known.t_ns[-1]
    window = imu[5:9]
    assert len(window) == 4 and np.array_equal(window.acc, known.data["acc"][5:9])
    assert np.array_equal(window.t_ns, known.t_ns[5:9])
    assert np.array_equal(window["seq"], known.seq[5:9])
    assert len(imu[7:3]) == 0 and imu[7:3].acc.shape == (0, 3)
    assert [s.index for s in imu] == list(range(len(imu)))
    joined = np.concatenate([w.acc for w in imu.windows(7)])
    assert np.array_equal(joined, known.data["acc"])
    with pytest.raises(ValueError, match="no step"):
        imu[::2]
    for beyond in (len(imu), -len(imu) - 1):
        with pytest.raises(IndexError, match=f"sample {beyond} of {len(imu)}"):
            imu[beyond]
    with pytest.raises(IndexError):
        session["camera"].picture(len(session["camera"]))


def summarize_streams(builder: Builder) -> dict[str, Any]:
    from recorder.session.reader import Session

    with Session(builder.path) as reader:
        found: dict[str, Any] = summarize(reader, gaps=True)["streams"]
    return found


def test_a_session_says_what_it_is(built: Builder, session: recorder.Session) -> None:
    assert (session.name, session.state, session.live) == ("built", "clean", False)
    assert session.metadata == {"vehicle": "rig-1"}
    assert session.start_ns == START_NS and session.end_ns is not None
    assert list(session) == list(session.streams) == ["camera", "imu"]
    assert "imu" in session and "lidar" not in session
    assert [e["cause"] for e in session.events()] == ["buffer", "network", "stalled"]
    assert session.kept_events() == []
    session.refresh()
    assert len(session["imu"]) == len(built.streams["imu"].t_ns)


def test_a_wrong_name_suggests_the_right_one(session: recorder.Session) -> None:
    wrong: dict[str, Callable[[], object]] = {
        "has no stream 'camra' (did you mean 'camera'?); its streams: camera, imu": lambda: session[
            "camra"
        ],
        "has no channel 'ac' (did you mean 'acc'?); its channels: acc, avel, rot": lambda: session[
            "imu"
        ][0]["ac"],
        "has no stream 'imo' (did you mean 'imu'?)": lambda: session.calibration("imo"),
        "has no stream 'imuu' (did you mean 'imu'?)": lambda: session.lost("imuu"),
        "has no stream 'lidar'; its streams": lambda: session.synchronized("camera", lidar=0.1),
        "the frame: has no stream 'im' (did you mean 'imu'?)": lambda: next(
            iter(session.synchronized("camera", imu=0.1))
        )["im"],
    }
    for text, use in wrong.items():
        with pytest.raises(KeyError) as caught:
            use()
        assert text in str(caught.value)
        assert isinstance(caught.value, recorder.UnknownNameError | recorder.SessionError)
    with pytest.raises(AttributeError, match="did you mean 'acc'"):
        _ = session["imu"][0].accc
    frame = next(iter(session.synchronized("camera", imu=0.1)))
    with pytest.raises(AttributeError, match="did you mean 'imu'"):
        _ = frame.imu_
    assert not hasattr(frame, "lidar")
    with pytest.raises(recorder.SessionError, match="has no points: it is no lidar's stream"):
        session["camera"].points(0, "sensor")
    with pytest.raises(recorder.SessionError, match="has no pictures"):
        session["imu"].picture(0)
    with pytest.raises(ValueError, match="needs 'rig' or 'sensor', not 'world'"):
        session["camera"].points(0, "world")  # type: ignore[arg-type]


def test_losses_are_those_of_info(built: Builder, session: recorder.Session) -> None:
    info = summarize_streams(built)
    assert session.lost("imu") == info["imu"]["lost"] == {"buffer": 3, "network": 2, "stalled": 0}
    assert session["imu"].lost == info["imu"]["lost"]
    assert session.lost("camera") == info["camera"]["lost"] == {}
    gaps = session.gaps()
    assert [gap.stream for gap in gaps] == ["imu"] * 3 and gaps == session.gaps("imu")
    for gap, entry in zip(gaps, info["imu"]["gaps"], strict=True):
        for key, value in entry.items():
            if key != "duration_ns":
                assert getattr(gap, key) == value, key
    assert session.gaps("camera") == []


def test_the_losses_of_an_absent_sensor(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(imu_spec(), 0.1)
    builder.sensors["lidar"] = {"driver": "ouster", "streams": ["lidar"]}
    builder.close()
    with recorder.open(builder.path) as session:
        assert session.lost("lidar") == {"absent": 0}
        (gap,) = session.gaps()
        assert (gap.stream, gap.cause, gap.count) == ("lidar", "absent", None)


def test_a_part_is_that_of_the_commands(built: Builder) -> None:
    t_ns = built.streams["imu"].t_ns
    inside = (t_ns >= START_NS + 100_000_000) & (t_ns < START_NS + 250_000_000)
    for from_, until in ((0.1, 0.25), ("0.1", "0.25"), (1e-1, "0.25")):
        with recorder.open(built.path, from_=from_, until=until) as part:
            assert np.array_equal(part["imu"].t_ns, t_ns[inside])
            first = int(np.flatnonzero(inside)[0])
            known = built.streams["imu"].data["acc"]
            assert np.array_equal(part["imu"][0].acc, known[first])
            assert part.start_ns == START_NS + 100_000_000
            again = pickle.loads(pickle.dumps(part))
            assert np.array_equal(again["imu"].t_ns, t_ns[inside])
            again.close()
    with pytest.raises(recorder.SessionError, match="has no sample"):
        recorder.open(built.path, from_=1000)
    with pytest.raises(recorder.UsageError, match="needs seconds"):
        recorder.open(built.path, from_="soon")
    with pytest.raises(recorder.UsageError, match="needs seconds"):
        recorder.open(built.path, from_=-1)


def test_a_closed_session_raises_one_error(built: Builder) -> None:
    session = recorder.open(built.path)
    imu, frames = session["imu"], session.synchronized("camera", imu=0.1)
    sample, window = imu[0], imu[:3]
    next(frames)
    with session:
        pass
    uses: list[Callable[[], object]] = [
        lambda: session.name,
        lambda: list(session),
        lambda: session["imu"],
        lambda: len(imu),
        lambda: imu[0],
        lambda: sample.acc,
        lambda: sample.t_ns,
        lambda: window.acc,
        lambda: session.pose(0),
        lambda: session.lost("imu"),
        lambda: session.gaps(),
        lambda: next(frames).imu.acc,
    ]
    for use in uses:
        with pytest.raises(recorder.SessionError, match="the session is closed; open it again"):
            use()
    session.close()
    assert "(closed)" in repr(session)


def test_a_session_closes_with_its_last_reference(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recorder.session.reader import Session

    closed: list[Path] = []
    close = Session.close

    def noted(self: Session) -> None:
        closed.append(self.path)
        close(self)

    monkeypatch.setattr(Session, "close", noted)
    imu = recorder.open(built.path)["imu"]
    assert len(imu[0].acc) == 3
    assert closed == []
    del imu
    gc.collect()
    assert closed == [built.path]


def test_sessions_of_a_folder_are_found(tmp_path: Path) -> None:
    for name in ("b", "a/c", "d"):
        full_session(tmp_path / "root" / name, 0.1)
    header = tmp_path / "root" / "b" / "_recorder" / "session.json"
    header.write_text("{")
    found = list(recorder.sessions(tmp_path / "root"))
    assert [s.path.relative_to(tmp_path / "root").as_posix() for s in found] == ["a/c", "b", "d"]
    assert len(found[0]["imu"]) == len(found[2]["imu"]) == 10
    with pytest.raises(recorder.SessionError, match="is damaged: not JSON"):
        _ = found[1].name
    with pytest.raises(recorder.SessionError, match="cannot be listed"):
        list(recorder.sessions(tmp_path / "no"))
    with pytest.raises(recorder.SessionError, match="no such session folder"):
        recorder.open(tmp_path / "no")


def test_a_folder_that_cannot_be_listed_is_reported_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    full_session(tmp_path / "root" / "z", 0.1)
    (tmp_path / "root" / "a").mkdir()
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "a":
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr("recorder.session.discovery.os.scandir", scandir)
    found = recorder.sessions(tmp_path / "root")
    assert next(found).path.name == "z"
    with pytest.raises(recorder.SessionError, match="a: cannot be listed: Permission denied"):
        next(found)


def test_a_stream_with_a_damaged_meta_json(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "s", 0.1)
    (builder.path / "imu" / "meta.json").write_text("[]")
    with recorder.open(builder.path) as session:
        with pytest.raises(recorder.FormatError, match=r"imu/meta\.json"):
            session["imu"]
        assert len(session["radar"]) == 2


def read_in_another_process(session: recorder.Session, frame: Any, queue: Any) -> None:
    imu = session["imu"]
    queue.put((len(imu), imu[3].acc, frame.camera.rgb, frame.imu.acc))


def test_a_session_is_read_in_a_spawned_process(
    built: Builder, session: recorder.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = list(session.synchronized("camera", imu=0.05))[4]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=read_in_another_process, args=(session, frame, queue))
    process.start()
    length, acc, rgb, window = queue.get()
    process.join()
    assert process.exitcode == 0
    assert length == len(session["imu"]) and np.array_equal(acc, session["imu"][3].acc)
    assert np.array_equal(rgb, frame.camera.rgb) and np.array_equal(window, frame.imu.acc)


def test_a_relative_path_is_pickled_as_an_absolute_one(
    built: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(built.path.parent)
    with recorder.open("built") as session:
        data = pickle.dumps(session["imu"])
        assert len(copy.copy(session["imu"])) == len(session["imu"])
    monkeypatch.chdir(tmp_path)
    assert len(pickle.loads(data)) == len(built.streams["imu"].t_ns)


@pytest.mark.parametrize("spec", [camera_spec(), raw_camera_spec(), video_camera_spec()])
def test_pictures_of_every_kind_of_camera(tmp_path: Path, spec: Any) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(spec, count=3)
    builder.close()
    with recorder.open(builder.path) as session:
        camera = session["camera"]
        assert camera.kind == "camera"
        picture = camera.picture(1)
        assert picture.shape == (*spec.channels[0].shape[:2], 3) and picture.dtype == np.uint8
        assert np.array_equal(picture, camera[1].rgb)
        if spec.channels[0].format != "raw":
            assert np.array_equal(picture, camera[1][spec.channels[0].name])
        assert camera.jpeg(1)[:2] == b"\xff\xd8"


class FakePandas(types.ModuleType):
    """What `to_pandas` calls of pandas."""

    @staticmethod
    def DataFrame(columns: Any, index: Any) -> Any:  # noqa: N802
        return columns, index

    @staticmethod
    def to_datetime(values: Any, unit: str, utc: bool) -> Any:
        assert (unit, utc) == ("ns", True)
        return values


def test_a_table_for_pandas(
    built: Builder, session: recorder.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = built.streams["imu"]
    monkeypatch.setitem(sys.modules, "pandas", FakePandas("pandas"))
    columns, index = session["imu"].to_pandas()
    assert list(columns) == [f"{name}[{k}]" for name in ("acc", "avel", "rot") for k in range(3)]
    assert np.array_equal(columns["avel[1]"], known.data["avel"][:, 1])
    assert np.array_equal(index, known.t_ns)
    columns, index = session["imu"][4:6].to_pandas(["seq", "rot"])
    assert list(columns) == ["seq", "rot[0]", "rot[1]", "rot[2]"]
    assert columns["seq"].tolist() == [4, 5] and len(index) == 2
    columns, _ = session["camera"].to_pandas()
    assert columns == {}
    with pytest.raises(recorder.UsageError, match="a table holds channels"):
        session["camera"].to_pandas(["video.avi"])
    with pytest.raises(recorder.UnknownNameError, match="did you mean 'rot'"):
        session["imu"].to_pandas(["rott"])


def test_pandas_is_needed_only_for_tables(
    session: recorder.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_pandas needs pandas: pip install pandas"):
        session["imu"].to_pandas()


def test_what_is_not_calibrated_is_named(session: recorder.Session, drive_path: Path) -> None:
    nothing = session.calibration("camera")
    assert (nothing.T_sensor_rig, nothing.model, nothing.resolution) == (None, None, None)
    with pytest.raises(recorder.SessionError, match=r"sensors\.camera\.T_sensor_rig"):
        nothing.project(np.zeros((1, 3)))
    with pytest.raises(recorder.SessionError, match=r"sensors\.camera\.model"):
        nothing.project(np.zeros((1, 3)), "sensor")
    with recorder.open(drive_path) as drive:
        camera = drive.calibration("camera")
        with pytest.raises(ValueError, match=r"needs the shape \[n, 3\], not \[3\]"):
            camera.project([1, 2, 3])
        with pytest.raises(ValueError, match="needs 'rig' or 'sensor'"):
            camera.project(np.zeros((1, 3)), "world")  # type: ignore[arg-type]
        ahead, behind = camera.project([[0, 0, 10], [0, 0, -10]], "sensor")
        assert np.allclose(ahead, (159.5, 89.5)) and np.isnan(behind).all()
        assert camera.project(np.zeros((0, 3))).shape == (0, 2)
        assert camera.resolution == (320, 180) and camera.model == "opencv-pinhole"


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("opencv-fisheye", {"fx": 100.0, "fy": 100.0, "cx": 159.5, "cy": 89.5, "k1": -0.02}),
        ("ftheta", {"cx": 159.5, "cy": 89.5, "angle_to_pixel": [0.0, 100.0]}),
    ],
)
def test_cameras_of_every_model_project(
    tmp_path: Path, model: str, parameters: dict[str, Any]
) -> None:
    import json

    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.1)
    builder.close()
    entry = {"model": model, "parameters": parameters, "resolution": [320, 180]}
    (builder.path / "calibration.yaml").write_text(json.dumps({"sensors": {"camera": entry}}))
    with recorder.open(builder.path) as session:
        angle = 0.4
        point = [[10 * np.sin(angle), 0, 10 * np.cos(angle)]]
        (pixel,) = session.calibration("camera").project(point, "sensor")
        bent = angle * (1 - 0.02 * angle**2) if model == "opencv-fisheye" else angle
        assert np.allclose(pixel, (159.5 + 100 * bent, 89.5), atol=1e-3)


def test_a_wrong_calibration_is_an_error_of_the_session(built: Builder, tmp_path: Path) -> None:
    shutil.copytree(built.path, tmp_path / "s")
    (tmp_path / "s" / "calibration.yaml").write_text("sensors:\n  camera: {model: fisheye}\n")
    with (
        recorder.open(tmp_path / "s") as session,
        pytest.raises(recorder.SessionError, match=r"calibration\.yaml:2: sensors\.camera\.model"),
    ):
        session.calibration("camera")


def test_points_without_poses_are_not_moved(drive_path: Path, tmp_path: Path) -> None:
    shutil.copytree(drive_path, tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "_pose")
    shutil.rmtree(tmp_path / "s" / "imu")
    with recorder.open(tmp_path / "s") as session:
        assert session.pose(START_NS) is None
        assert session.pose_source["measured"] is False
        lidar = session["lidar"]
        assert np.array_equal(lidar.points(1), lidar.points(1, motion_corrected=False))


def test_samples_are_merged_by_time(built: Builder, session: recorder.Session) -> None:
    found = [(s.t_ns, s.stream.name, s.index) for s in session.samples()]
    assert found == sorted(found, key=lambda item: item[0])
    assert len(found) == sum(len(s.t_ns) for s in built.streams.values())
    assert {name for _, name, _ in found} == {"camera", "imu"}
    assert [s.index for s in session.samples("imu")] == list(range(len(session["imu"])))


def test_nearest_takes_the_earlier_of_two(built: Builder, session: recorder.Session) -> None:
    t_ns = built.streams["imu"].t_ns.tolist()
    middle = (t_ns[3] + t_ns[4]) // 2
    imu = session["imu"]
    near = imu.nearest(middle)
    assert near is not None and near.index == 3
    assert imu.nearest(t_ns[0] - 10**9, 0.5) is None
    with pytest.raises(ValueError, match="tolerance: needs seconds, not -1"):
        imu.nearest(middle, -1)
    assert imu.between(t_ns[3], t_ns[6]).indices == range(3, 6)


def test_a_stream_without_a_sample(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(imu_spec(), count=0)
    builder.add(camera_spec(), 0.1)
    builder.close()
    with recorder.open(builder.path) as session:
        imu = session["imu"]
        assert len(imu) == 0 and imu.rate_hz is None and list(imu) == []
        assert imu.nearest(START_NS) is None
        frame = next(session.synchronized("camera", imu=0.1))
        assert len(frame.imu) == 0 and frame.imu.acc.shape == (0, 3)
        assert list(session.synchronized("imu")) == []
