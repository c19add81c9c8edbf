"""RoboSense's packets: places of all values as rs_driver has them, round trips, garbage."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.kit.driver import SensorConfig
from drivers.kit.lidar.columns import Columns
from drivers.robosense.description import is_description, read_description
from drivers.robosense.driver import RobosenseDriver, RobosenseFamily
from drivers.robosense.models import BIG, LITTLE, MODELS
from drivers.robosense.packets import DUAL_NAMES, RobosenseDecoder, find_model, read_temperature
from recorder.common.errors import FormatError
from recorder.config.options import check_options
from recorder.perception.lidar.beams import BeamPoints
from tests.drivers.robosense.rig import (
    CASES,
    START_NS,
    angles,
    describe,
    make_decoder,
    make_packets,
    options_for,
    turning,
)
from tests.support.devices import samples

GOLDEN = Path(__file__).with_name("rs_driver_points.json")


def join(parts: list[Columns]) -> Columns:
    """The columns of all parts."""

    def along(name: str, axis: int = 0) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else np.concatenate(values, axis)

    images = {name: along(name, 1) for name in ("ranges", "reflectivity", "confidence")}
    return Columns(**images, azimuth=along("azimuth"), t_ns=along("t_ns"), host_ns=along("host_ns"))


@pytest.mark.parametrize(("name", "returns"), CASES)
def test_columns_are_the_same_after_a_round_trip(name: str, returns: int) -> None:
    model = MODELS[name]
    sent = turning(model, returns, 40)
    packets = make_decoder(model, returns).encode(sent, 7)
    names = ("single",) if returns == 1 else DUAL_NAMES
    decoder = RobosenseDecoder(model, packets[0].tobytes(), names if name == "RS-16" else ())
    assert decoder.returns == names and decoder.rate_hz == 10.0
    assert decoder.find_sound(packets).all()
    parts = [
        decoder.decode(packets[a:b], np.arange(a, b))
        for a, b in ((0, 7), (7, 8), (8, len(packets)))
    ]
    found = join([part for part in parts if len(part.azimuth)])
    assert np.array_equal(found.ranges, sent.ranges)
    assert np.array_equal(found.reflectivity, sent.reflectivity)
    firings = model.firings if returns == 1 else 1
    assert np.array_equal(found.azimuth[::firings], sent.azimuth[::firings])
    assert np.abs(found.azimuth.astype(int) - sent.azimuth).max() <= 41
    assert np.abs(found.t_ns - sent.t_ns).max() < 1000  # packets tell microseconds
    if model.feature_bits:
        assert found.confidence is not None and sent.confidence is not None
        assert np.array_equal(found.confidence, sent.confidence)
        assert decoder.read_numbers(packets).tolist() == list(range(7, 7 + len(packets)))
    assert np.array_equal(decoder.encode(found, 7), packets)
    # A column comes from the packets before and with it.
    assert found.host_ns is not None and (np.diff(found.host_ns) >= 0).all()


@pytest.mark.parametrize(("name", "returns"), CASES)
def test_every_value_is_where_rs_driver_reads_it(name: str, returns: int) -> None:
    """Offsets by hand from the structs of rs_driver's decoder_RS*.hpp."""
    packet = make_packets(MODELS[name], returns, 2)[0].tobytes()
    columns = turning(MODELS[name], returns, 2)
    begin, block, lasers = {
        "RS-16": (42, 100, 32), "RS-32": (42, 100, 32), "Helios": (42, 100, 32),
        "Ruby Plus": (80, 388, 128), "Airy": (42, 148, 48), "Airy-48": (42, 148, 48),
    }[name]  # fmt: skip
    azimuth, distance, intensity = struct.unpack_from(">HHB", packet, begin + 2)
    assert azimuth == columns.azimuth[0]
    assert distance & 0x3FFF == columns.ranges[0, 0, 0] & 0x3FFF
    assert intensity == columns.reflectivity[0, 0, 0]
    second = struct.unpack_from(">HHB", packet, begin + block + 2)
    at = {"Airy": (0, 0, 48), "RS-16": (0, 2 // returns, 0)}.get(
        name, (returns - 1, 2 - returns, 0)
    )
    assert second[0] == columns.azimuth[at[1]] and second[2] == columns.reflectivity[at]
    last = struct.unpack_from(">HB", packet, begin + 4 + 3 * (lasers - 1))
    wanted = (returns - 1, 2 - returns, 15) if name == "RS-16" else (0, 0, lasers - 1)
    assert last[1] == columns.reflectivity[wanted]
    if name in ("RS-16", "RS-32"):
        assert packet[20:26] == bytes((23, 11, 14, 22, 13, 20))
    else:
        seconds = int.from_bytes(packet[10:16] if name == "Ruby Plus" else packet[20:26], "big")
        assert seconds == START_NS // 10**9


@pytest.mark.parametrize("name", MODELS)
def test_a_description_tells_angles_returns_and_speed(name: str) -> None:
    model = MODELS[name]
    for returns in (1, 2):
        payload = describe(model, returns, rpm=1200)
        assert is_description(payload)
        told = read_description(model, payload)
        elevation, azimuth = angles(model)
        assert told.elevation_deg is not None and told.azimuth_deg is not None
        assert np.allclose(told.elevation_deg, elevation, atol=1e-3)
        assert np.allclose(told.azimuth_deg, azimuth, atol=1e-3)
        assert len(told.returns) == returns and told.rate_hz == 20.0
        assert told.serial == "010203040506" and told.values["set_rpm"] == 1200
    if model.angles_at[1] >= 0:
        empty = bytearray(payload)
        empty[468] = 0xFF
        assert read_description(model, bytes(empty)).elevation_deg is None
    assert read_description(model, payload[:468] + bytes(780)).elevation_deg is None
    with pytest.raises(FormatError, match="is no description"):
        read_description(model, payload[:-1])


def test_an_airy_fires_by_its_mounting() -> None:
    model, told = MODELS["Airy"], []
    for mounting in (0, 1, 2, 255):
        payload = bytearray(describe(model, 1))
        payload[289] = mounting
        told.append(read_description(model, bytes(payload)).firing_us)
    assert [us[8] if us else None for us in told] == [5.712, 11.424, 7.616, None]
    assert model.firing_us[8] == 7.616


def test_the_packets_name_their_model() -> None:
    for name, model in MODELS.items():
        packet = make_packets(model, 1, 2)[0].tobytes()
        if name in ("RS-16", "RS-32"):
            with pytest.raises(FormatError, match="RS-16 and RS-32 do not differ"):
                find_model(packet, None)
        else:
            assert find_model(packet, None) is model
        assert find_model(packet, name) is model
    with pytest.raises(FormatError, match="is of a Airy, not of a Helios"):
        find_model(packet, "Helios")
    with pytest.raises(FormatError, match="do not tell the number of returns"):
        RobosenseDecoder(MODELS["RS-16"], make_packets(MODELS["RS-16"], 1, 2)[0].tobytes())


@given(data=st.binary(max_size=1300), name=st.sampled_from([None, *MODELS]))
def test_other_packets_are_refused(data: bytes, name: str | None) -> None:
    with pytest.raises(FormatError, match="is of no model"):
        find_model(data, name)


@pytest.mark.parametrize("name", MODELS)
def test_damaged_packets_are_found(name: str) -> None:
    model = MODELS[name]
    decoder, packets = make_decoder(model, 1), make_packets(model, 1, 5)
    packets[0, 0] ^= 1
    packets[1, model.header] ^= 1
    packets[2, model.header + 2] = 0xFF  # 652 deg
    if name in ("RS-16", "RS-32"):
        packets[3, 21] = 13  # the month
    sound = [False, False, False, name not in ("RS-16", "RS-32"), True]
    assert decoder.find_sound(packets).tolist() == sound


def test_parts_that_the_device_leaves_out_take_their_time() -> None:
    model = MODELS["Helios"]
    packets = make_packets(model, 1, 1)
    for block in range(6, 12):
        at = 42 + 100 * block + 2
        azimuth = int.from_bytes(packets[0, at : at + 2].tobytes(), "big")
        packets[0, at : at + 2] = list((azimuth + 9_000).to_bytes(2, "big"))
    columns = make_decoder(model, 1).decode(packets, np.zeros(1, np.int64))
    steps = np.diff(columns.t_ns)
    assert (np.abs(np.delete(steps, 5) - 55_560) < 2).all()
    assert steps[5] == pytest.approx(25_055_000, abs=60_000)  # a quarter of a turn at 10 Hz


@pytest.mark.parametrize(
    ("field", "order", "wanted"),
    [
        ((0x08, 0x00), LITTLE, 0.0625),
        ((0x00, 0x0A), LITTLE, 20.0),
        ((0x00, 0x8A), LITTLE, -20.0),
        ((0x14, 0x00), BIG, 20.0),
        ((0x94, 0x10), BIG, -20.0625),
    ],
)
def test_temperatures(field: tuple[int, int], order: str, wanted: float) -> None:
    assert read_temperature(np.array(field, np.uint8), order) == wanted


def test_points_are_those_of_rs_driver() -> None:
    """Points that RoboSense's rs_driver 1.5.19, compiled, made of the packets of `make_packets`.

    A point is x, y, z in m, intensity, and us after `START_NS`.  rs_driver has azimuths in whole
    0.01 deg.
    """
    cases = json.loads(GOLDEN.read_text())
    assert [(case["model"], case["returns"]) for case in cases] == CASES
    for case in cases:
        model, returns = MODELS[case["model"]], case["returns"]
        options = check_options(RobosenseDriver.options, options_for(model))
        family = RobosenseFamily(SensorConfig("lidar", "pcap", "", options))
        description = bytearray(describe(model, returns))
        description[289] = 0  # an Airy stands upright
        assert family.take_side_packet(bytes(description))
        packets, times = make_packets(model, returns, 6), START_NS + np.arange(6)
        stream = family.start(packets[0].tobytes(), live=False)
        (sample,) = samples([*stream.take(packets, times, times), *stream.finish()])
        (spec,) = stream.specs(finite=True)
        data = {name: np.asarray(values)[0] for name, values in sample.data.items()}
        _, points = BeamPoints(spec).points(data, 0)
        found = np.stack([points["x"], points["y"], points["z"]], 1)
        since_ns = int(data["t_col"][data["t_col"] > 0].min()) - START_NS
        for *xyz, intensity, micros in case["points"]:
            apart = np.linalg.norm(found - xyz, axis=1)
            nearest = int(apart.argmin())
            assert apart[nearest] < 0.001 + np.radians(0.017) * np.linalg.norm(xyz)
            assert points["intensity"][nearest] == intensity
            assert abs((since_ns + int(points["t"][nearest])) / 1000 - micros) <= 2
