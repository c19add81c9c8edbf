"""``recorder redecode``: a new session of recorded packets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recorder.formats.pcap.writer import PcapWriter
from recorder.session.reader import Session
from tests.acceptance.command import here
from tests.drivers.kit.lidar.lidars import Lidar
from tests.drivers.kit.lidar.packet_messages import HOST, SENSOR
from tests.drivers.livox import rig as livox
from tests.session.build import Builder, imu_spec

TIMES = {"seq", "t_mono"}
"""Files with numbers of the session itself, and times of its computer's clock."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of a Hesai, a Livox with its IMU, and a lidar without packets."""
    folder = tmp_path_factory.mktemp("packets")
    lidar = Lidar("PandarXT16")
    packets, t_ns = lidar.send(lidar.turn(1300))
    for k in (400, 401, 402):
        packets[k, 0] = 0  # damaged
    with (folder / "hesai.pcap").open("wb") as file:
        writer = PcapWriter(file)
        for at, packet in zip(t_ns.tolist(), packets, strict=True):
            writer.write(at, SENSOR, 10000, HOST, 2368, packet.tobytes())
    sent = livox.arrivals(livox.Lidar().packets(700))
    del sent[40:43]
    livox.write_device(folder / "livox.pcap", sent)
    (folder / "config.yaml").write_text(
        f"""version: 1
sensors:
  roof: {{driver: hesai, source: "pcap:{folder}/hesai.pcap", packets: true, pace: max}}
  front: {{driver: livox, source: "pcap:{folder}/livox.pcap", packets: true, pace: max}}
  plain: {{driver: hesai, source: "pcap:{folder}/hesai.pcap", pace: max}}
"""
    )
    ran = here("run", folder / "config.yaml", "--root", folder, "--name", "s")
    assert ran.code == 3, ran.err  # packets are missing
    return folder / "s"


def files(session: Path) -> dict[str, bytes]:
    """The files of all channels."""
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for stream in ("roof", "front", "front_imu", "plain")
        for path in sorted((session / stream).iterdir())
        if path.name not in TIMES
    }


def test_all_channels_are_the_same_and_all_else_is_kept(recorded: Path) -> None:
    ran = here("redecode", recorded, "--format", "json")
    assert ran.code == 3, ran.err
    made = Path(ran.result["session"])
    assert made == recorded.parent / "s_redecoded"
    old, new = files(recorded), files(made)
    assert old.keys() == new.keys()
    for name, content in old.items():
        # `meta.json` has descriptions of channels that are played.
        assert new[name] == content or name.endswith("meta.json"), name
    with Session(recorded) as before, Session(made) as after:
        for name in ("roof", "front", "front_imu", "plain"):
            assert (after.streams[name].t_ns == before.streams[name].t_ns).all()
        assert after.header is not None
        assert after.header["metadata"]["redecoded"] == {"from": str(recorded), "options": []}
    info = here("info", made, "--format", "json").result["streams"]
    assert {name: stream["incomplete"] for name, stream in info.items()} == {
        "roof": {"device": {"samples": 1, "parts": 12}},
        "front": {"recorded": {"samples": 1, "parts": 3}},
        "front_imu": {},
        "plain": {"recorded": {"samples": 1, "parts": 12}},
    }
    assert here("validate", made, "--deep").code == 0


def test_another_calibration_changes_the_beams_alone(recorded: Path, tmp_path: Path) -> None:
    angles = "".join(f"{k + 1},{15 - 2 * k},0.5\n" for k in range(16))
    (tmp_path / "angles.csv").write_text("Laser id,Elevation,Azimuth\n" + angles)
    option = f"roof.calibration={tmp_path / 'angles.csv'}"
    ran = here(
        *("redecode", recorded, "--root", tmp_path, "--name", "new"),
        *("--option", option, "--option", "roof.firing_azimuth=true"),
    )
    assert ran.code == 3, ran.err
    old, new = files(recorded), files(tmp_path / "new")
    changed = {name for name, content in old.items() if new[name] != content}
    assert {name for name in changed if not name.endswith("meta.json")} == {"roof/beams.json"}
    beams = json.loads(new["roof/beams.json"])
    assert beams["calibration"] == "angles.csv" and beams["turns_while_firing"] is True
    assert np.allclose(beams["azimuth_deg"], 0.5)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--option", "roof"], "is not of the form SENSOR.KEY=VALUE"),
        (["--option", "roof.source=pcap:x"], "is not of the form SENSOR.KEY=VALUE"),
        (["--option", "plain.cut_deg=5"], "plain: has no packets; the sensors with packets: roof"),
        (["--option", "roof.cut_deg=[]"], "cut_deg"),
        (["--name", "s"], "a session of that name exists"),
    ],
)
def test_wrong_words_are_named(recorded: Path, words: list[str], fault: str) -> None:
    ran = here("redecode", recorded, *words)
    assert ran.code == 2 and fault in "\n".join(ran.err), ran.err
    assert not (recorded.parent / "s_redecoded_2").exists()


def test_a_session_without_packets_is_refused(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(imu_spec(), 0.1)
    ran = here("redecode", builder.close())
    assert ran.code == 2 and "no sensor was recorded with `packets: true`" in "\n".join(ran.err)
