"""``driver: robosense`` from captures and bags: what the device tells, and its sweeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.robosense.driver import RobosenseDriver
from drivers.robosense.models import MODELS
from recorder.codecs.beams import BEAMS
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError
from recorder.formats.ros2.definitions import (
    ROBOSENSE_INFO,
    ROBOSENSE_SCAN,
    RSLIDAR_OLD_PACKET,
    RSLIDAR_OLD_SCAN,
    RSLIDAR_PACKET,
)
from tests.drivers.kit.lidar.packet_messages import Packets, scan_message
from tests.drivers.robosense.rig import (
    CASES,
    angles,
    arrivals,
    describe,
    make_packets,
    options_for,
    write_device,
)
from tests.formats.bags.kit import Sent, write_mcap
from tests.support.devices import losses, make_driver, play, play_out, samples, states


def read_beams(spec: StreamSpec) -> dict[str, Any]:
    return json.loads(spec.files[BEAMS])  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "returns"), CASES)
def test_a_capture_gives_sweeps_by_what_the_device_tells(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, returns: int
) -> None:
    model = MODELS[name]
    columns = (
        model.blocks
        * (3 - returns if model.firings > 1 else 1)
        / (max(1, model.channels // model.lasers) * (returns if model.firings == 1 else 1))
    )
    turn = round(1e8 / (1000 * model.column_us) / columns)
    packets = arrivals(make_packets(model, returns, turn + 30 + turn % 2))
    path = write_device(tmp_path / "a.pcap", packets, describe(model, returns))
    spec, items = play(make_driver(RobosenseDriver, "lidar", "pcap", path, **options_for(model)))
    beams = read_beams(spec)
    elevation, azimuth = angles(model)
    assert np.allclose(beams["elevation_deg"], elevation) and beams["model"] == name
    assert np.allclose(beams["azimuth_deg"], azimuth) and beams["calibration"] == "sensor"
    assert beams["serial"] == "010203040506" and beams["lens_mm"] == list(model.lens_mm)
    assert len(beams["returns"]) == returns and spec.rate_hz == 10.0
    assert "no calibration" not in capfd.readouterr().err
    assert not losses(items) and len(samples(items)) == 2
    assert not [s for s in states(items) if "columns_missing" in s]
    (told,) = [s for s in states(items, lasting=True) if "serial" in s]
    assert told["set_rpm"] == 600 and told["return_mode"] in (*model.dual, 1, 4)
    if name in ("Helios", "Ruby Plus"):
        assert told["time_sync_state"] == "synchronized by PTP"
    assert {"temperature_c": 0} in states(items, lasting=True)


def test_without_a_description_the_angles_are_those_of_the_design(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    packets = arrivals(make_packets(MODELS["RS-32"], 2, 20))
    path = write_device(tmp_path / "a.pcap", packets, None)
    with pytest.raises(SourceError, match="do not differ: set the option `model`"):
        make_driver(RobosenseDriver, "lidar", "pcap", path).open()
    spec, _ = play(make_driver(RobosenseDriver, "lidar", "pcap", path, model="RS-32"))
    beams = read_beams(spec)
    assert beams["calibration"] == "default" and beams["elevation_deg"][0] == -10.333
    assert beams["returns"] == ["first sent", "second sent"]  # as the azimuths tell
    assert "points have the angles of the design of a RS-32" in capfd.readouterr().err
    old = write_device(tmp_path / "b.pcap", arrivals(make_packets(MODELS["RS-16"], 1, 9)), None)
    with pytest.raises(SourceError, match="or the option `returns`"):
        make_driver(RobosenseDriver, "lidar", "pcap", old, model="RS-16").open()
    made = make_driver(RobosenseDriver, "lidar", "pcap", old, model="RS-16", returns=1)
    assert read_beams(play(made)[0])["returns"] == ["single"]
    ruby = write_device(tmp_path / "c.pcap", arrivals(make_packets(MODELS["Helios"], 1, 9)), None)
    with pytest.raises(SourceError, match="a Helios has no angles of its design"):
        make_driver(RobosenseDriver, "lidar", "pcap", ruby).open()


def test_a_file_of_angles_comes_before_the_description(tmp_path: Path) -> None:
    model = MODELS["Helios"]
    path = write_device(
        tmp_path / "a.pcap", arrivals(make_packets(model, 1, 9)), describe(model, 1)
    )
    file = tmp_path / "angle.csv"
    file.write_text("".join(f"{k}.5,{-k}.25\n" for k in range(32)))
    made = make_driver(RobosenseDriver, "lidar", "pcap", path, calibration=str(file))
    beams = read_beams(play(made)[0])
    assert beams["elevation_deg"][3] == 3.5 and beams["calibration"] == "angle.csv"


def test_a_changed_return_mode_ends_the_stream(tmp_path: Path) -> None:
    model = MODELS["Helios"]
    packets = arrivals(make_packets(model, 1, 30))
    packets[15:15] = [(packets[14][0], describe(model, 2))]
    path = write_device(tmp_path / "a.pcap", packets[:15], describe(model, 1))
    driver = make_driver(RobosenseDriver, "lidar", "pcap", path)
    assert play_out(driver)[1] is None
    messages = [scan_message("/rs", RSLIDAR_PACKET, [packet]) for packet in packets]
    messages.insert(0, scan_message("/rs", RSLIDAR_PACKET, [(packets[0][0], describe(model, 1))]))
    path = write_mcap(tmp_path / "a.mcap", messages)
    items, error = play_out(make_driver(RobosenseDriver, "lidar", "bag", path))
    assert isinstance(error, SourceError) and "first sent and second sent from here on" in str(
        error
    )
    (sample,) = samples(items)
    assert np.count_nonzero(sample.data["t_col"]) == 15 * 12


def write_messages(kind: str, packets: Packets, description: bytes) -> list[Sent]:
    t_ns = packets[0][0]
    if kind == RSLIDAR_PACKET:
        sent = [(t_ns, description), *packets]
        return [scan_message("/rslidar_packets", kind, [packet]) for packet in sent]
    about, topic = {
        ROBOSENSE_SCAN: (ROBOSENSE_INFO, "/robosense_info_packets"),
        RSLIDAR_OLD_SCAN: (RSLIDAR_OLD_PACKET, "/rslidar_packets_difop"),
    }[kind]
    return [
        *(scan_message("/rslidar_packets", kind, packets[at : at + 40]) for at in (0, 40, 80)),
        scan_message(topic, about, [(t_ns, description)]),
    ]


@pytest.mark.parametrize("kind", [RSLIDAR_PACKET, ROBOSENSE_SCAN, RSLIDAR_OLD_SCAN])
def test_a_bag_gives_what_a_capture_of_the_packets_gives(tmp_path: Path, kind: str) -> None:
    model = MODELS["Helios"]
    packets, description = arrivals(make_packets(model, 1, 120)), describe(model, 1)
    capture = write_device(tmp_path / "a.pcap", packets, description)
    wanted_spec, wanted = play(make_driver(RobosenseDriver, "lidar", "pcap", capture))
    path = write_mcap(tmp_path / "a.mcap", write_messages(kind, packets, description))
    spec, items = play(make_driver(RobosenseDriver, "lidar", "bag", path))
    assert spec == wanted_spec and not losses(items)
    (sample,), (other,) = samples(items), samples(wanted)
    assert sample.t_ns.tolist() == other.t_ns.tolist()
    for name, values in sample.data.items():
        assert np.array_equal(np.asarray(values), np.asarray(other.data[name])), name
    assert [s for s in states(items) if "serial" in s] == [
        s for s in states(wanted) if "serial" in s
    ]
