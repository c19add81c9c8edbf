"""Bad input: the right exit code, one message that says what and where, and no harm done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.command import contents, here, recorder, write_config
from tests.drivers.ouster.rig import make_info

GARBAGE = bytes(range(256)) * 40
IMU = 'imu: {driver: xsens, source: "sim:", pace: max}'


@pytest.fixture
def root(old_session: Path, tmp_path: Path) -> Path:
    """A root with a session in it that nothing may touch."""
    root = tmp_path / "root"
    shutil.copytree(old_session, root / "first")
    return root


CONFIGS = {
    "unknown-key": (
        'imu: {driver: xsens, source: "sim:", raet: 100}',
        "bad.yaml:4: sensors.imu.raet: unknown key for driver 'xsens' (did you mean 'rate'?)",
    ),
    "unknown-driver": (
        'imu: {driver: xens, source: "sim:"}',
        "bad.yaml:4: sensors.imu.driver: no driver 'xens' (did you mean 'xsens'?); "
        "known drivers: camera, can, gnss, mmwave, ouster, udp, xsens",
    ),
    "wrong-type": (
        'imu: {driver: xsens, source: "sim:", rate: fast}',
        "bad.yaml:4: sensors.imu.rate: needs a number, not str ('fast')",
    ),
    "missing-file": (
        f'{IMU}\ncamera: {{driver: camera, source: "file:gone.mp4"}}',
        "bad.yaml:5: sensors.camera.source: no such file: {folder}/gone.mp4",
    ),
    "missing-metadata": (
        'lidar: {driver: ouster, source: "pcap:garbage", metadata: gone.json}',
        "bad.yaml:4: sensors.lidar.metadata: no such file: {folder}/gone.json",
    ),
    "missing-session": (
        'imu: {driver: xsens, source: "session:gone"}',
        "bad.yaml:4: sensors.imu.source: no such file: {folder}/gone",
    ),
    "garbage-pcap": (
        f'{IMU}\nlidar: {{driver: ouster, source: "pcap:garbage", metadata: lidar.json}}',
        "bad.yaml:5: sensors.lidar.source: {folder}/garbage: is not a pcap or pcapng file",
    ),
    "garbage-metadata": (
        'lidar: {driver: ouster, source: "pcap:garbage", metadata: garbage}',
        "bad.yaml:4: sensors.lidar.source: {folder}/garbage: is not Ouster sensor metadata: "
        "'utf-8' codec can't decode byte 0x80 in position 128: invalid start byte",
    ),
    "garbage-video": (
        f'{IMU}\ncamera: {{driver: camera, source: "file:garbage"}}',
        "bad.yaml:5: sensors.camera.source: file:{folder}/garbage: not a video with a frame that "
        "OpenCV can decode",
    ),
    "garbage-log": (
        'imu: {driver: xsens, source: "file:garbage"}',
        "bad.yaml:4: sensors.imu.source: file:{folder}/garbage: no MTData2 message with "
        "acceleration and rate of turn, "
        "nor any other Xbus message",
    ),
    "no-session": (
        'imu: {driver: xsens, source: "session:empty"}',
        "bad.yaml:4: sensors.imu.source: session:{folder}/empty: is no session: no config.yaml, "
        "no sensor with a meta.json",
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_cannot_be_recorded(root: Path, tmp_path: Path, case: str) -> None:
    sensors, message = CONFIGS[case]
    (tmp_path / "garbage").write_bytes(GARBAGE)
    (tmp_path / "empty").mkdir()
    (tmp_path / "lidar.json").write_text(make_info().to_json_string())
    config = write_config(tmp_path / "bad.yaml", sensors)
    before = contents(root)
    ran = here("run", config, "--root", root, "--name", "second", "--duration", 1)
    assert ran.out == ""
    expected = message.format(folder=tmp_path).replace("bad.yaml", str(config), 1)
    assert (ran.code, ran.complaints) == (2, [f"recorder run: {expected}"])
    assert contents(root) == before
    assert [path.name for path in root.iterdir()] == ["first"]


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    ran = recorder("run", tmp_path / "gone.yaml")  # the exit code as a shell sees it
    assert (ran.code, ran.err) == (
        2,
        [f"recorder run: {tmp_path}/gone.yaml: No such file or directory"],
    )


LONG = "a" * 101
NAMES = {
    "taken": ("first", "{root}/first: a session of that name exists"),
    "parent": (
        "../x",
        "session name '../x': is a path; a session is one folder right below its root",
    ),
    "absolute": (
        "/tmp/x",
        "session name '/tmp/x': is a path; a session is one folder right below its root",
    ),
    "unicode": (
        "größe",
        "session name 'größe': holds 'ö'; a name takes the letters A-Z and a-z, digits, "
        "'.', '_' and '-'",
    ),
    "overlong": (
        LONG,
        "session name 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...': is 101 characters long, "
        "100 is the most",
    ),
    "empty": ("", "session name '': is empty"),
    "hidden": (".x", "session name '.x': starts with '.', not a letter or digit"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_that_cannot_be(root: Path, tmp_path: Path, case: str) -> None:
    name, message = NAMES[case]
    config = write_config(tmp_path / "good.yaml", IMU)
    before, beside = contents(root), sorted(tmp_path.iterdir())
    ran = here("run", config, "--root", root, f"--name={name}", "--duration", "0.2")
    assert (ran.code, ran.complaints) == (2, [f"recorder run: {message.format(root=root)}"])
    assert contents(root) == before
    assert sorted(tmp_path.iterdir()) == beside


def test_the_longest_name_and_a_taken_template_name_record(root: Path, tmp_path: Path) -> None:
    before = contents(root / "first")
    config, longest = write_config(tmp_path / "good.yaml", IMU), "b" * 100
    ran = here("run", config, "--root", root, "--name", longest, "--duration", "0.2")
    assert (ran.code, ran.complaints) == (0, [])
    config.write_text(config.read_text() + "session: {name: first}\n")
    for _ in range(2):
        assert here("run", config, "--root", root, "--duration", "0.2").code == 0
    assert sorted(p.name for p in root.iterdir()) == sorted(
        ["first", "first_2", "first_3", longest]
    )
    assert contents(root / "first") == before


@pytest.mark.parametrize("duration", ["0", "-1", "soon", "nan"])
def test_a_duration_that_cannot_be(tmp_path: Path, duration: str) -> None:
    ran = here("run", tmp_path / "any.yaml", f"--duration={duration}")
    assert ran.code == 2
    assert f"argument --duration: {duration!r} is not a number of seconds above 0" in ran.err[-1]
