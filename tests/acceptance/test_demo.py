"""The demo's config: four simulated sensors of one world, and every command that looks at them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from ouster.sdk import core

from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera
from drivers.world import World
from drivers.world.mounts import LIDAR, RADAR
from recorder.bus.sockets import TapSubscriber
from recorder.bus.wire import Kind
from recorder.codecs.streams import StreamSpec
from recorder.session.reader import Session, lidar_range_mm
from tests.acceptance.command import (
    DEADLINE_S,
    RECORDER,
    assert_nothing_lost,
    assert_sound,
    column,
    here,
    meta,
    relative_ns,
)
from tests.acceptance.conftest import Recorded
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.mmwave.spectra import Spectrum
from tests.drivers.ouster.caster import in_target, off_surface

pytestmark = pytest.mark.campaign(weight=2)

Floats = npt.NDArray[np.float64]

COUNTS = {"camera": 30, "imu": 100, "lidar": 10, "lidar_imu": 100, "radar": 20}
PERIODS_NS = {"camera": 1e9 / 30, "imu": 1e7, "lidar": 1e8, "lidar_imu": 1e7, "radar": 5e7}

NOTES = [
    "edgefirst: lidar: 2 of 30 samples of camera have none within 50 ms",
    "l5kit: _cuboids/truth.jsonl: classes without a label of L5Kit's, UNKNOWN there: "
    "building, pole",
    "mcap: lidar: no message has the channels nir",
]


def test_a_second_has_exactly_their_samples(demo: Recorded) -> None:
    session, ran = demo
    assert (ran.code, ran.complaints) == (0, NOTES)
    assert {name: s["samples"] for name, s in ran.result["streams"].items()} == COUNTS
    assert {s["ended"] for s in ran.result["streams"].values()} == {"duration"}
    for stream, period_ns in PERIODS_NS.items():
        mono = relative_ns(session, stream)
        assert mono.min() >= 0 and mono.max() < 1_000_000_000
        assert np.abs(np.diff(mono) - period_ns).max() < 2, stream
    assert_nothing_lost(session)
    assert_sound(session)


def test_it_is_packed_as_every_archive(demo: Recorded) -> None:
    archives = demo[0] / "_archives"
    assert {path.name for path in archives.glob("*/*") if not path.name.startswith(".")} == {
        "demo", "demo.json", "demo.mcap", "demo.ncore4.zarr.itar", "demo.vrs", "demo.zarr"
    }  # fmt: skip
    assert {path.name for path in archives.glob("edgefirst/demo/*")} == {"demo.arrow", "demo.zip"}


def test_the_channels_are_those_of_the_layout(demo: Recorded) -> None:
    session, _ = demo
    shapes = {
        stream: {n: (e["format"], e["type"], e["shape"]) for n, e in meta(session, stream).items()}
        for stream in COUNTS
    }
    for stream, channels in shapes.items():
        for entry in meta(session, stream).values():
            assert set(entry) == {"format", "type", "shape", "desc"}, stream
        assert channels["ts"] == ("raw", "f8", []), stream
        assert channels["seq"] == channels["t_mono"] == ("raw", "u8", []), stream
    assert shapes["camera"]["video.avi"] == ("mjpg", "u1", [720, 1280, 3])
    assert shapes["radar"]["iq"] == ("raw", "i2", [64, 3, 4, 512])
    assert shapes["radar"]["valid"] == ("raw", "u1", [])
    for name, dtype in {"rng": "u2", "rng_far": "u4", "rfl": "u1", "nir": "u2"}.items():
        assert shapes["lidar"][name] == ("lzmaf", dtype, [128, 1024])
    assert shapes["imu"]["rot"] == ("raw", "f4", [3])
    assert (session / "radar/radar.json").is_file() and (session / "lidar/lidar.json").is_file()
    assert (column(session, "radar", "valid") == 1).all()


def test_info_and_list(demo: Recorded) -> None:
    session, _ = demo
    info = here("info", session, "--format", "json")
    assert info.code == 0
    assert {n: s["samples"] for n, s in info.result["streams"].items()} == COUNTS
    assert info.result["metadata"]["vehicle"] == "simulated"
    for stream, period_ns in PERIODS_NS.items():
        assert abs(info.result["streams"][stream]["rate_hz"] * period_ns / 1e9 - 1) < 1e-6
    text = here("info", session).out
    assert all(stream in text for stream in COUNTS) and "clean" in text
    listed = here("list", session.parent, "--format", "json")
    assert listed.code == 0
    (line,) = listed.result["sessions"] if isinstance(listed.result, dict) else listed.result
    assert (line["name"], line["state"], line["lost"]) == ("demo", "clean", 0)
    assert line["streams"] == sorted(COUNTS)


def tapped(endpoint: str) -> tuple[set[bytes], set[bytes]]:
    """Payloads of 20 IMU samples and 3 sweeps from a tap."""
    specs: dict[str, StreamSpec] = {}
    accelerations: set[bytes] = set()
    sweeps: set[bytes] = set()
    with TapSubscriber([endpoint], ["imu", "lidar"]) as tap:
        for message in tap.messages(timeout=DEADLINE_S):
            if message.kind is Kind.JOIN:
                spec = StreamSpec.from_wire(message.values["stream"])
                specs[spec.name] = spec
            elif message.stream in specs:
                names = [c.name for c in specs[message.stream].channels]
                frames = dict(zip(names, map(bytes, message.frames), strict=True))
                if message.stream == "imu":
                    accelerations.add(frames["acc"])
                elif message.stream == "lidar":
                    sweeps.add(frames["rng"])
            if len(accelerations) >= 20 and len(sweeps) >= 3:
                break
    assert len(accelerations) >= 20 and len(sweeps) >= 3
    return accelerations, sweeps


def test_a_replay_reaches_subscribers(demo: Recorded, tmp_path: Path) -> None:
    session, _ = demo
    endpoint = f"ipc://{tmp_path}/tap"
    # A tap is lossy, so it is played round and round until the subscriber has had enough of it.
    with subprocess.Popen(
        [RECORDER, "replay", session, "--speed", "50", "--loop", "--tap", endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as replay:
        try:
            assert replay.stdout is not None
            assert replay.stdout.readline().strip() == endpoint
            accelerations, sweeps = tapped(endpoint)
            replay.terminate()
            _, err = replay.communicate(timeout=DEADLINE_S)
        finally:
            replay.kill()
    assert replay.returncode == 0, err
    recorded = column(session, "imu", "acc").tobytes()
    assert all(acceleration in recorded for acceleration in accelerations)
    stored = (session / "lidar/rng").read_bytes()
    assert all(sweep in stored for sweep in sweeps)  # the encoded frames, as they lie on disk


def test_a_replay_ends_with_the_session(demo: Recorded) -> None:
    ran = here("replay", demo[0], "--speed", 50, "--streams", "imu,lidar")
    assert ran.code == 0
    assert ran.err == ["recorder replay: imu 100, lidar 10"]


WORLD = World("drive")


@pytest.fixture(scope="module")
def session(demo: Recorded) -> Iterator[Session]:
    with Session(demo[0]) as session:
        yield session


def test_pictures_are_those_of_the_world(session: Session) -> None:
    pictures = SimulatedCamera(WORLD, Lens.default(1280, 720))
    for frame in (4, 26):
        recorded = session.streams["camera"].sample(frame)["video.avi"][..., ::-1]
        assert read_frame_number(np.ascontiguousarray(recorded)) == frame
        # JPEG at quality 90 stays this close; the next picture does not.
        off = [np.abs(recorded.astype(int) - pictures.frame(frame + k)).mean() for k in (0, 1)]
        assert off[0] < 1.5 < 3 < off[1], off


def test_boxes_are_of_the_time_of_their_picture(session: Session) -> None:
    lines = (session.path / "_labels/camera.jsonl").read_text().splitlines()[1:]
    boxes = [json.loads(line) for line in lines]
    t_ns = session.streams["camera"].t_ns
    assert {box["frame"] for box in boxes} == set(range(30))
    assert all(box["t_ns"] == t_ns[box["frame"]] for box in boxes)


@dataclass
class Cloud:
    """Points [n, 3] of a sweep in the sensor's frame and their times [n]."""

    points: Floats
    t_s: Floats

    def in_world(self, t_s: Floats | None = None) -> Floats:
        position, rotation = WORLD.trajectory.pose(self.t_s if t_s is None else t_s)
        in_rig = self.points @ LIDAR.rotation.T + LIDAR.translation
        return np.asarray(np.einsum("nij,nj->ni", rotation, in_rig) + position)


def read_cloud(session: Session, index: int, every: int = 1) -> Cloud:
    """A sweep's points by ouster-sdk; the world begins with the session."""
    stream = session.streams["lidar"]
    info = core.SensorInfo((session.path / "lidar/lidar.json").read_text())
    ranges = lidar_range_mm(stream, index)
    assert session.start_ns is not None and stream.t_dev_ns is not None
    late = stream.sample(index, ["t_col"])["t_col"].astype(np.int64) - int(stream.t_dev_ns[index])
    t_s = (int(stream.t_ns[index]) - session.start_ns + late) * 1e-9
    hit = ranges > 0
    points = np.asarray(core.XYZLut(info, False)(ranges), np.float64)
    return Cloud(points[hit][::every], np.broadcast_to(t_s, ranges.shape)[hit][::every])


def test_points_lie_on_surfaces_at_each_columns_own_time(session: Session) -> None:
    for index in (0, 9):
        cloud = read_cloud(session, index, every=61)
        off, _ = off_surface(cloud.in_world(), cloud.t_s, WORLD)
        # 8 mm of noise along the ray, and rounding to 8 mm; the surface may be nearer.
        assert np.sqrt(np.mean(off**2)) < 0.009 and off.max() < 0.05
        # Taken at the sweep's end, all at once, they would not.
        late = np.full_like(cloud.t_s, cloud.t_s.max())
        off, _ = off_surface(cloud.in_world(late), late, WORLD)
        assert np.sqrt(np.mean(off**2)) > 0.05


def test_lidar_and_radar_see_the_same_cars(session: Session) -> None:
    """Each car's nearest point by lidar has an echo at its range, in the rig's frame."""
    cloud = read_cloud(session, 5)
    in_world = cloud.in_world()
    spectrum = read_spectrum(session)
    seen = 0
    for car in (target for target in WORLD.targets if target.kind == "car"):
        centre, turned = in_target(WORLD, car.number, cloud.t_s)
        local = np.einsum("nji,nj->ni", turned, in_world - centre)
        on_car = (np.abs(local) < np.array(car.size_m) / 2 + 0.03).all(axis=1) & (
            local[:, 2] > -0.6
        )
        position, rotation = WORLD.trajectory.pose(cloud.t_s[on_car])
        in_rig = np.einsum("nji,nj->ni", rotation, in_world[on_car] - position)
        if on_car.sum() < 50 or in_rig[:, 0].max() < 5:  # hidden, or behind
            continue
        away_m = np.linalg.norm((in_rig - RADAR.translation)[:, :2], axis=1)
        _, column = spectrum.place(float(away_m.min()), 0.0)
        cells = spectrum.power[:, round(column) - 4 : round(column) + 5]
        peak = int(np.unravel_index(int(cells.argmax()), cells.shape)[1]) - 4 + round(column)
        assert abs(peak - column) <= 2, car.track
        assert cells.max() > 100 * np.median(spectrum.power), car.track
        seen += 1
    assert seen >= 5


def read_spectrum(session: Session) -> Spectrum:
    """The radar's frame in the middle of the sixth sweep."""
    described = json.loads((session.path / "radar/radar.json").read_bytes())
    stream = session.streams["radar"]
    index = stream.at(int(session.streams["lidar"].t_ns[5]) - 50_000_000)
    return Spectrum.of(stream.sample(index, ["iq"])["iq"], {**described, "iq_order": "qqii"})
