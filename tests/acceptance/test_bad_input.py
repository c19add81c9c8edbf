"""Bad input: the right exit code, one message a fault that says what and where, no harm done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command import contents, here, recorder, write_config
from tests.drivers.ouster.rig import make_info

IMU = 'imu: {driver: xsens, source: "sim:", pace: max}'
FAULTS_OF_THE_CONFIG = {
    'imu: {driver: xsens, source: "sim:", raet: 100}': (
        "imu.raet: unknown key for driver 'xsens' (did you mean 'rate'?)"
    ),
    'lidar: {driver: xens, source: "sim:"}': (
        "lidar.driver: no driver 'xens' (did you mean 'xsens'?); "
        "known drivers: camera, can, gnss, hesai, imu, lidar, livox, mmwave, ouster, robosense, "
        "topics, udp, velodyne, xsens"
    ),
    'camera: {driver: camera, source: "file:gone.mp4"}': (
        "camera.source: no such file: {folder}/gone.mp4"
    ),
    'rear: {driver: ouster, source: "pcap:garbage", metadata: gone.json}': (
        "rear.metadata: no such file: {folder}/gone.json"
    ),
    'again: {driver: xsens, source: "session:gone"}': ("again.source: no such file: {folder}/gone"),
}
FAULTS_OF_FILES = {
    'lidar: {driver: ouster, source: "pcap:garbage", metadata: lidar.json}': (
        "lidar.source: {folder}/garbage: is not a pcap or pcapng file"
    ),
    'rear: {driver: ouster, source: "pcap:garbage", metadata: garbage}': (
        "rear.source: {folder}/garbage: is not Ouster sensor metadata: "
        "'utf-8' codec can't decode byte 0x80 in position 128: invalid start byte"
    ),
    'camera: {driver: camera, source: "file:garbage"}': (
        "camera.source: file:{folder}/garbage: not a video with a frame that OpenCV can decode"
    ),
    'imu: {driver: xsens, source: "file:garbage"}': (
        "imu.source: file:{folder}/garbage: no MTData2 message with acceleration and rate of "
        "turn, nor any other Xbus message"
    ),
    'again: {driver: xsens, source: "session:empty"}': (
        "again.source: session:{folder}/empty: is no session: no config.yaml, "
        "no sensor with a meta.json"
    ),
}
CONFIGS = [FAULTS_OF_THE_CONFIG, *({line: text} for line, text in FAULTS_OF_FILES.items())]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a session in it that nothing may touch."""
    root = tmp_path / "root"
    (root / "first/imu").mkdir(parents=True)
    (root / "first/imu/ts").write_bytes(bytes(80))
    return root


@pytest.mark.parametrize("sensors", CONFIGS, ids=["config", *range(len(FAULTS_OF_FILES))])
def test_a_config_that_cannot_be_recorded(
    root: Path, tmp_path: Path, sensors: dict[str, str]
) -> None:
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "empty").mkdir()
    (tmp_path / "lidar.json").write_text(make_info().to_json_string())
    config = write_config(tmp_path / "bad.yaml", "\n".join(sensors))
    before = contents(root)
    ran = here("run", config, "--root", root, "--name", "second", "--duration", 1)
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaints == [
        f"recorder run: {config}:{line}: sensors.{message.format(folder=tmp_path)}"
        for line, message in enumerate(sensors.values(), start=4)
    ]
    assert contents(root) == before
    assert [path.name for path in root.iterdir()] == ["first"]


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    ran = recorder("run", tmp_path / "gone.yaml")  # the exit code as a shell sees it
    assert (ran.code, ran.err) == (
        2,
        [f"recorder run: {tmp_path}/gone.yaml: No such file or directory"],
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("first", "{root}/first: a session of that name exists"),
        ("../x", "session name '../x': is a path; a session is one folder right below its root"),
    ],
)
def test_a_name_that_cannot_be(root: Path, tmp_path: Path, name: str, message: str) -> None:
    config = write_config(tmp_path / "good.yaml", IMU)
    before, beside = contents(root), sorted(tmp_path.iterdir())
    ran = here("run", config, "--root", root, f"--name={name}", "--duration", "0.2")
    assert (ran.code, ran.complaints) == (2, [f"recorder run: {message.format(root=root)}"])
    assert contents(root) == before
    assert sorted(tmp_path.iterdir()) == beside


def test_a_taken_template_name_records(root: Path, tmp_path: Path) -> None:
    before = contents(root / "first")
    config = write_config(tmp_path / "good.yaml", IMU)
    config.write_text(config.read_text() + "session: {name: first}\n")
    ran = here("run", config, "--root", root, "--duration", "0.2")
    assert (ran.code, ran.complaints) == (0, [])
    assert sorted(p.name for p in root.iterdir()) == ["first", "first_2"]
    assert contents(root / "first") == before


@pytest.mark.parametrize("duration", ["0", "-1", "soon", "nan"])
def test_a_duration_that_cannot_be(tmp_path: Path, duration: str) -> None:
    ran = here("run", tmp_path / "any.yaml", f"--duration={duration}")
    assert ran.code == 2
    assert f"argument --duration: {duration!r} is not a number of seconds above 0" in ran.err[-1]
