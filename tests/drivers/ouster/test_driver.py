"""The Ouster driver against ouster-sdk's own decoding, on real and on synthetic captures."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ouster.sdk import core, osf

from drivers.kit.driver import Item, Lost, Sample, State
from drivers.ouster.frames import convert_metadata
from drivers.ouster.model import LidarScene, default_info
from drivers.world import World
from recorder.common.errors import SourceError
from tests.drivers.ouster.rig import (
    BEAMS,
    COLUMNS,
    DEVICE0_NS,
    PACKETS,
    PER_PACKET,
    SERIAL,
    SWEEP_NS,
    T0_NS,
    assert_equals_frame,
    assert_same_items,
    capture,
    driver_for,
    flat,
    imu_packet,
    lidar_packets,
    make_frame,
    make_info,
    play,
    samples,
    sdk_frames,
    write,
)
from tests.support.devices import opened, play_out

OS1 = ("OS-1-128_v2.3.0_1024x10_lb_n3.pcap", "OS-1-128_v2.3.0_1024x10.json")
OS0 = ("OS-0-32-U1_v2.2.0_1024x10.pcap", "OS-0-32-U1_v2.2.0_1024x10.json")
PROFILES = [p.name for p in core.UDPProfileLidar.values() if p.name not in ("UNKNOWN", "OFF")]


@pytest.mark.parametrize(("names", "sweeps", "imu"), [(OS1, 3, 30), (OS0, 1, 10)])
def test_real_capture_equals_ouster_sdk(
    shared_data: Path, names: tuple[str, str], sweeps: int, imu: int
) -> None:
    pcap, metadata = (shared_data / "ouster" / name for name in names)
    specs, items = play(driver_for("pcap", pcap, metadata=str(metadata)))
    assert len(items) == sweeps + imu  # no State, no Lost: nothing is missing
    frames = sdk_frames(pcap, metadata)
    assert len(samples(items)) == len(frames) == sweeps
    for sample, frame in zip(samples(items), frames, strict=True):
        assert_equals_frame(sample, frame)
    assert [s.rate_hz for s in specs] == [10.0, 100.0]
    assert all(s.finite and s.device_clock for s in specs)
    # The flat metadata of old firmware becomes what roverd reads, without a change in content.
    text = specs[0].files["lidar.json"]
    assert {"lidar_data_format", "beam_intrinsics", "lidar_intrinsics"} <= set(json.loads(text))
    assert core.SensorInfo(text).to_json_string() == text
    assert core.SensorInfo(metadata.read_text()).to_json_string() == text


@pytest.mark.parametrize("origin_mm", [12.163, 27.67])
def test_metadata_of_firmware_2_gets_the_transform_that_roverd_reads(origin_mm: float) -> None:
    """Firmware 2.0 to 2.4 states the beams' origin as one length, roverd reads a matrix."""
    document = json.loads(make_info("LEGACY").to_json_string())
    del document["beam_intrinsics"]["beam_to_lidar_transform"]
    document["beam_intrinsics"]["lidar_origin_to_beam_origin_mm"] = origin_mm
    document["calibration_status"] = "error: Command not recognized."
    metadata = json.dumps(document)
    info = core.SensorInfo(metadata)
    converted = json.loads(convert_metadata(info, metadata))
    added = np.eye(4)
    added[0, 3] = origin_mm
    found = converted["beam_intrinsics"].pop("beam_to_lidar_transform")
    np.testing.assert_array_equal(np.reshape(found, (4, 4)), added)
    assert converted == document  # everything else stays
    again = core.SensorInfo(convert_metadata(info, metadata))
    assert again.to_json_string() == info.to_json_string()


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("lidar_data_format", "pixel_shift_by_row"),
        ("beam_intrinsics", "beam_to_lidar_transform"),
        ("lidar_intrinsics", "lidar_to_sensor_transform"),
    ],
)
def test_metadata_are_kept_byte_for_byte_where_nothing_is_missing(section: str, key: str) -> None:
    info = make_info("LEGACY")
    whole = json.loads(info.to_json_string())
    text = json.dumps(whole, indent=1)
    assert convert_metadata(info, text) == text
    value = whole[section].pop(key)
    assert json.loads(convert_metadata(info, json.dumps(whole)))[section][key] == value


def test_real_imu_values(shared_data: Path) -> None:
    """Against the packets' bytes, taken apart by hand: three stamps, then g and deg/s."""
    pcap, metadata = (shared_data / "ouster" / name for name in OS1)
    _, items = play(driver_for("pcap", pcap, metadata=str(metadata)))
    raw, at, expected = pcap.read_bytes(), 24, []
    while at < len(raw):
        seconds, micros, size, _ = struct.unpack_from("<IIII", raw, at)
        if size == 14 + 20 + 8 + 48:
            values = struct.unpack_from("<QQQ6f", raw, at + 16 + 42)
            expected.append((seconds * 10**9 + micros * 1000, values))
        at += 16 + size
    got = samples(items, "lidar_imu")
    assert len(got) == len(expected) == 30
    for sample, (t_ns, values) in zip(got, expected, strict=True):
        assert (sample.t_ns[0], sample.t_dev_ns[0]) == (t_ns, values[2])
        np.testing.assert_allclose(sample.data["acc"][0], np.array(values[3:6]) * 9.80665, 1e-6)
        np.testing.assert_allclose(sample.data["avel"][0], np.deg2rad(values[6:9]), 1e-6)
    assert 9.5 < np.linalg.norm([s.data["acc"][0] for s in got], axis=1).mean() < 11.5


def test_osf_of_a_real_capture_gives_the_same_sweeps(shared_data: Path, tmp_path: Path) -> None:
    pcap, metadata = (shared_data / "ouster" / name for name in OS0)
    info = core.SensorInfo(metadata.read_text())
    with osf.Writer(str(tmp_path / "a.osf"), [info]) as writer:
        for frame in sdk_frames(pcap, metadata):
            writer.save(0, frame)
    _, expected = play(driver_for("pcap", pcap, metadata=str(metadata), imu=False))
    specs, items = play(driver_for("osf", tmp_path / "a.osf"))
    assert [s.name for s in specs] == ["lidar"]
    assert_same_items(items, expected)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_from_pcap_and_osf(tmp_path: Path, profile: str) -> None:
    info = make_info(profile)
    path = write(tmp_path, info, flat(capture(info, [7, 8])))
    specs, items = play(driver_for("pcap", path))
    assert len(items) == len(samples(items)) == 2
    frames = sdk_frames(path, path.with_suffix(".json"))
    if profile == "FIVE_WORD_PIXEL":  # ouster-sdk gives this one's words; its fields are in them
        for sample, frame in zip(samples(items), frames, strict=True):
            for n, suffix in ((1, ""), (2, "2")):
                word = frame.field(f"RAW32_WORD{n}")
                ranges = sample.data["rng" + suffix] + sample.data[f"rng{suffix}_far"]
                np.testing.assert_array_equal(ranges[0], word & 0x7FFFF)
                np.testing.assert_array_equal(sample.data["rfl" + suffix][0], word >> 24)
            nir = frame.field("RAW32_WORD4") & 0xFFFF
            np.testing.assert_array_equal(sample.data["nir"][0], nir)
        return
    for sample, frame in zip(samples(items), frames, strict=True):
        assert frame.field("RANGE").max() > 65535  # so that saturation is tried
        assert_equals_frame(sample, frame)
    assert ("rng2" in [c.name for c in specs[0].channels]) == ("DUAL" in profile)
    with osf.Writer(str(tmp_path / "a.osf"), [info]) as writer:
        for frame in frames:
            writer.save(0, frame)
    assert_same_items(play(driver_for("osf", tmp_path / "a.osf"))[1], items)


@pytest.mark.parametrize("scheme", ["pcap", "osf"])
def test_imu_of_newer_firmware(tmp_path: Path, scheme: str) -> None:
    info = make_info(imu="ACCEL32_GYRO32_NMEA")
    frames = [make_frame(info, 7 + k, k) for k in range(2)]
    frames[1].field("IMU_STATUS")[5] = 0
    path = write(tmp_path, info, flat(lidar_packets(info, frame) for frame in frames))
    if scheme == "osf":
        path = tmp_path / "a.osf"
        with osf.Writer(str(path), [info]) as writer:
            for frame in frames:
                writer.save(0, frame)
    specs, items = play(driver_for(scheme, path))
    assert all(spec.finite for spec in specs)
    assert specs[1].rate_hz == 80.0
    assert len(samples(items)) == 2 and len(samples(items, "lidar_imu")) == 4
    acc, avel, t_dev_ns, status = (
        np.concatenate([frame.field(name) for frame in frames])
        for name in ("IMU_ACC", "IMU_GYRO", "IMU_TIMESTAMP", "IMU_STATUS")
    )
    good, imu = status > 0, samples(items, "lidar_imu")
    assert good.sum() == 15
    np.testing.assert_array_equal(np.concatenate([s.data["acc"] for s in imu]), acc[good])
    np.testing.assert_array_equal(np.concatenate([s.data["avel"] for s in imu]), avel[good])
    np.testing.assert_array_equal(np.concatenate([s.t_dev_ns for s in imu]), t_dev_ns[good])
    stamps = [int(t) for frame in frames for t in frame.field("IMU_PACKET_TIMESTAMP")]
    assert [s.t_ns[-1] for s in imu] == stamps
    assert all(np.array_equal(np.diff(s.t_ns), np.diff(s.t_dev_ns)) for s in imu)


def test_extra_fields_and_compression(tmp_path: Path) -> None:
    info = make_info("RNG19_RFL8_SIG16_NIR16_DUAL")
    path = write(tmp_path, info, flat(capture(info, [7])))
    driver = driver_for("pcap", path, extra=["SIGNAL", "SIGNAL2"], compression="raw", imu=False)
    specs, items = play(driver)
    assert {c.format for c in specs[0].channels} == {"raw"}
    frame = sdk_frames(path, path.with_suffix(".json"))[0]
    for name in ("SIGNAL", "SIGNAL2"):
        np.testing.assert_array_equal(samples(items)[0].data[name.lower()][0], frame.field(name))
    with pytest.raises(SourceError, match=r"extra: 'SIGNL'.*the fields are: .*SIGNAL"):
        driver_for("pcap", path, extra=["SIGNL"]).open()


def test_missing_packets_are_zeros_and_counted(tmp_path: Path) -> None:
    info = make_info()
    sweeps = capture(info, [7, 8, 9])
    del sweeps[1][2:4], sweeps[2][PACKETS - 1]
    path = write(tmp_path, info, flat(sweeps))
    _, items = play(driver_for("pcap", path))
    for sample, frame in zip(
        samples(items), sdk_frames(path, path.with_suffix(".json")), strict=True
    ):
        assert_equals_frame(sample, frame)
    lost = samples(items)[1].data
    assert not lost["t_col"][0, 32:64].any() and lost["t_col"][0, 64:].all()
    assert not lost["rng"][0, :, 32:64].any()
    ends = [T0_NS + 2 * SWEEP_NS, T0_NS + 3 * SWEEP_NS - SWEEP_NS // PACKETS]
    holes = {"incomplete": {"device": {"samples": 1, "parts": 32}}}
    cut = {"columns_missing": 16, "packets_missing": 1, "frame_id": 9}  # the capture's own end
    assert [i for i in items if isinstance(i, State)] == [
        State(
            "lidar", ends[0], {"columns_missing": 32, "packets_missing": 2, **holes, "frame_id": 8}
        ),
        State("lidar", ends[1], cut),
    ]


def holes_of(items: list[Item]) -> list[int]:
    """Columns that the sweeps lack within the capture, of each sweep that lacks any."""
    states = [i.values for i in items if isinstance(i, State) and "incomplete" in i.values]
    return [cause["parts"] for values in states for cause in values["incomplete"].values()]


@pytest.mark.parametrize(
    ("first", "last", "holes", "missing"),
    [
        (slice(3), slice(PACKETS - 4, None), [], [48, 64]),  # the capture's own begin and end
        (slice(1, 2), slice(2, 4), [16, 32], [16, 32]),
        (slice(PACKETS - 2, None), slice(1, None), [32], [32, 112]),  # one of the next came
    ],
)
def test_columns_that_are_missing_within_a_capture_make_sweeps_incomplete(
    tmp_path: Path, first: slice, last: slice, holes: list[int], missing: list[int]
) -> None:
    info = make_info()
    sweeps = capture(info, [7, 8])
    del sweeps[0][first], sweeps[1][last]
    _, items = play(driver_for("pcap", write(tmp_path, info, flat(sweeps))))
    assert len(samples(items)) == 2 and holes_of(items) == holes
    assert [i.values["columns_missing"] for i in items if isinstance(i, State)] == missing


def test_a_narrow_window_misses_nothing(tmp_path: Path) -> None:
    info = make_info(window=COLUMNS // 2)
    sweeps = [sweep[: PACKETS // 2] for sweep in capture(info, [7, 8])]
    _, items = play(driver_for("pcap", write(tmp_path, info, flat(sweeps))))
    assert len(items) == len(samples(items)) == 2


def test_imu_waits_for_a_sweep_that_lost_its_end(tmp_path: Path) -> None:
    info = make_info()
    sweeps = capture(info, [7, 8])
    del sweeps[0][5:]
    step = SWEEP_NS // 10
    imu = [imu_packet(T0_NS + n * step, DEVICE0_NS + n * step) for n in range(1, 21)]
    path = write(tmp_path, info, flat([*sweeps, imu, [imu[7]]]))  # and one packet twice
    _, items = play(driver_for("pcap", path))  # which checks the order of all stamps
    assert len(samples(items)) == 2
    got = samples(items, "lidar_imu")
    assert [int(s.t_ns[0]) for s in got] == [t_ns for t_ns, _, _ in imu]
    np.testing.assert_allclose(got[0].data["acc"], [[0, 0, 9.80665]], 1e-6)
    np.testing.assert_allclose(got[0].data["avel"], [[np.pi / 2, 0, 0]], 1e-6)


def test_imu_goes_on_when_the_lidar_falls_silent(tmp_path: Path) -> None:
    info = make_info()
    step = SWEEP_NS // 10
    imu = [imu_packet(T0_NS + n * step, DEVICE0_NS + n * step) for n in range(1, 200)]
    packets = flat([capture(info, [7])[0][:5], imu])
    with opened(driver_for("pcap", write(tmp_path, info, packets))) as driver:
        kinds = [getattr(driver.read(), "stream", "") for _ in range(150)]
    assert kinds.count("lidar") == 2  # the sweep and its State, long before the end of the file


@pytest.mark.parametrize("kept", [1, 3, 6])
def test_the_last_sweep_in_part_is_kept(tmp_path: Path, kept: int) -> None:
    """Also behind an incomplete one, where ouster-sdk itself forgets its first packets."""
    info = make_info()
    sweeps = capture(info, [7, 8])
    del sweeps[0][4], sweeps[1][kept:]
    _, items = play(driver_for("pcap", write(tmp_path, info, flat(sweeps))))
    columns = [np.count_nonzero(s.data["t_col"]) for s in samples(items)]
    assert columns == [COLUMNS - PER_PACKET, kept * PER_PACKET]


def test_missing_sweeps_are_counted_over_the_wrap(tmp_path: Path) -> None:
    info = make_info()
    _, items = play(
        driver_for("pcap", write(tmp_path, info, flat(capture(info, [65533, 65534, 2, 3]))))
    )
    assert len(samples(items)) == 4
    assert [(i.cause, i.count) for i in items if isinstance(i, Lost)] == [("device", 3)]


def test_other_sensors_and_other_traffic_are_left_alone(tmp_path: Path) -> None:
    info = make_info()
    ours = flat(capture(info, [7, 8]))
    other = lidar_packets(info, make_frame(info, 3000), sn=SERIAL + 1)
    noise = [(t_ns, port, b"hello") for t_ns, _, _ in ours for port in (53, 7504)]
    path = write(tmp_path, info, flat([ours, other, noise]))
    _, items = play(driver_for("pcap", path))
    _, alone = play(driver_for("pcap", write(tmp_path, info, ours)))
    assert_same_items(items, alone)


def test_packets_of_another_size_are_a_loss_that_is_told(tmp_path: Path) -> None:
    info, changed = make_info(), make_info("RNG15_RFL8_NIR8_DUAL")
    sweeps = [*capture(info, [7]), lidar_packets(changed, make_frame(changed, 8, 1))]
    _, items = play(driver_for("pcap", write(tmp_path, info, flat(sweeps))))
    lost = [i for i in items if isinstance(i, Lost)]
    assert [(i.cause, i.count) for i in lost] == [("corrupt", None)]


def test_without_host_stamps_the_device_tells_the_time(tmp_path: Path) -> None:
    info = make_info()
    step = SWEEP_NS // 10
    imu = [imu_packet(T0_NS + n * step + 1, DEVICE0_NS + n * step) for n in range(1, 11)]
    path = write(tmp_path, info, flat([*capture(info, [7, 8]), imu]), stamps=False)
    _, (*items, state) = play(driver_for("pcap", path))
    assert isinstance(state, State) and state.values == {"timed_by_device_clock": True}
    for item in items:
        assert isinstance(item, Sample) and item.t_dev_ns is not None
        np.testing.assert_array_equal(item.t_ns, item.t_dev_ns)
    assert [int(s.t_ns[0]) for s in samples(items)] == [DEVICE0_NS + k * SWEEP_NS for k in (1, 2)]


def test_a_capture_that_breaks_off_gives_what_it_has_then_one_error(tmp_path: Path) -> None:
    info = make_info()
    path = write(tmp_path, info, flat(capture(info, [7, 8])))
    path.write_bytes(path.read_bytes()[:-100])
    items, end = play_out(driver_for("pcap", path))
    assert "a.pcap: is truncated at byte" in str(end)
    columns = [np.count_nonzero(s.data["t_col"]) for s in samples(items)]
    assert columns == [COLUMNS, COLUMNS - PER_PACKET]


def test_broken_pcap_sources(tmp_path: Path) -> None:
    info, other = make_info(), make_info("RNG15_RFL8_NIR8_DUAL")
    path = write(tmp_path, info, flat(capture(info, [7])))
    metadata = path.with_suffix(".json")
    good, text = path.read_bytes(), metadata.read_text()
    foreign = json.loads(text)
    foreign["sensor_info"]["prod_sn"] = "99"
    for data, meta, message in (
        (good, other.to_json_string(), "a.pcap: holds no packet.*8 x 1280 bytes to port 7502"),
        (good, json.dumps(foreign), "a.pcap: holds no packet.*serial 99.*packets of serial 1234"),
        (good[:24], text, "a.pcap: holds no packet.*its UDP: none"),
        (b"", text, "a.pcap: is empty"),
        (b"?" * 999, text, "a.pcap: is not a pcap"),
        (good, "{}", "a.json: is not Ouster sensor metadata"),
        (good, "[", "a.json: is not Ouster sensor metadata"),
    ):
        path.write_bytes(data)
        metadata.write_text(meta)
        with pytest.raises(SourceError, match=message):
            play(driver_for("pcap", path))
    metadata.unlink()
    with pytest.raises(SourceError, match=r"needs the sensor's metadata.*a\.json: no such file"):
        play(driver_for("pcap", path))


def test_broken_osf_sources(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    info, path = make_info(), tmp_path / "a.osf"
    with osf.Writer(str(path), [info], chunk_size=1) as writer:
        for k in range(4):
            writer.save(0, make_frame(info, 7 + k, k))
    assert len(samples(play(driver_for("osf", path))[1])) == 4
    good = path.read_bytes()
    for data in (b"", b"?" * 5000, good[:-200], good[: len(good) // 2], good[:100]):
        path.write_bytes(data)
        with pytest.raises(SourceError, match=r"a\.osf: "):
            play(driver_for("osf", path))
    damaged = bytearray(good)
    damaged[len(good) // 2 : len(good) // 2 + 64] = bytes(64)
    path.write_bytes(damaged)
    with pytest.raises(SourceError, match=r"a\.osf: "):
        play(driver_for("osf", path))
    assert capfd.readouterr() == ("", "")


def test_osf_of_two_sensors(tmp_path: Path) -> None:
    infos, path = [make_info(), make_info()], tmp_path / "a.osf"
    infos[1].sn = SERIAL + 1
    frames = [make_frame(info, 7 + k) for k, info in enumerate(infos)]
    with osf.Writer(str(path), infos) as writer:
        for k, frame in enumerate(frames):
            writer.save(k, frame)
    with pytest.raises(SourceError, match="holds the sensors 1234, 1235; select one with option"):
        play(driver_for("osf", path))
    with pytest.raises(SourceError, match="none is 7"):
        play(driver_for("osf", path, serial=7))
    for k, frame in enumerate(frames):
        specs, items = play(driver_for("osf", path, serial=SERIAL + k))
        assert specs[0].settings["serial"] == str(SERIAL + k)
        assert_equals_frame(samples(items)[0], frame)


def test_open_and_close_repeat(tmp_path: Path) -> None:
    info = make_info()
    driver = driver_for("pcap", write(tmp_path, info, flat(capture(info, [7, 8]))))
    driver.open()
    driver.read()
    driver.close()  # in the middle
    assert_same_items(play(driver)[1], play(driver)[1])


def test_simulation_is_deterministic_and_moves(tmp_path: Path) -> None:
    options: dict[str, Any] = {"mode": "512x10", "beams": 32, "scene": "straight"}
    specs, first = play(driver_for("sim", "", seed=1, **options), 44)
    again = play(driver_for("sim", "", seed=1, **options), 22)[1]
    assert_same_items(again, first[:22])
    others: list[dict[str, Any]] = [{"seed": 0}, {"scene": "parked"}, {"noise": 0.0}]
    for other in others:
        changed = play(driver_for("sim", "", **{"seed": 1, **options, **other}), 11)[1]
        assert not np.array_equal(samples(changed)[0].data["rng"], samples(first)[0].data["rng"])
    assert not any(s.finite for s in specs) and [s.rate_hz for s in specs] == [10.0, 100.0]
    sweeps, imu = samples(first), samples(first, "lidar_imu")
    assert len(sweeps) == 4 and len(imu) == 40
    assert np.diff([s.t_ns[0] for s in sweeps]).tolist() == [SWEEP_NS] * 3
    # The world begins with the IMU's first sample, and with the first column.
    origin = driver_for("sim", "").origin_ns
    assert imu[0].t_ns[0] == origin == sweeps[0].data["t_col"][0, 0]
    for sweep in sweeps:
        columns = sweep.data["t_col"][0].astype(np.int64)
        assert columns[-1] == sweep.t_dev_ns[0] == sweep.t_ns[0]
        assert np.abs(np.diff(columns) - SWEEP_NS / 512).max() <= 1
        assert sweep.data["rng"].max() == 65535 and sweep.data["rng_far"].any()
        assert np.linalg.norm(imu[0].data["acc"]) == pytest.approx(9.8, abs=0.3)
    # Its points, made by ouster-sdk from the stored metadata, lie on the ground or above it.
    lut = core.XYZLut(core.SensorInfo(specs[0].files["lidar.json"]), False)
    heights = []
    for sweep in sweeps:
        ranges = sweep.data["rng"][0] + sweep.data["rng_far"][0]
        points = np.asarray(lut(ranges))[ranges > 0]
        height = points[:, 2] + 1.95
        assert height.min() > -0.05 and np.mean(np.abs(height) < 0.05) > 0.1
        heights.append(height)
    assert max(map(np.max, heights)) > 5
    assert not np.array_equal(sweeps[0].data["rng"], sweeps[1].data["rng"])


def test_simulation_of_a_given_sensor(tmp_path: Path) -> None:
    info = make_info("RNG19_RFL8_SIG16_NIR16_DUAL", imu="ACCEL32_GYRO32_NMEA")
    (tmp_path / "a.json").write_text(info.to_json_string())
    driver = driver_for("sim", "", metadata=str(tmp_path / "a.json"))
    specs, items = play(driver, 30)
    assert [s.name for s in specs] == ["lidar", "lidar_imu"]
    assert specs[0].files["lidar.json"] == info.to_json_string()
    data = samples(items)[0].data
    assert data["rng"].shape == (1, BEAMS, COLUMNS)
    assert {"rng2", "rng2_far", "rfl2"} <= set(data)
    # As many IMU samples as this sensor's metadata says.
    assert specs[1].rate_hz == 80.0
    imu = samples(items, "lidar_imu")
    assert {s.count for s in imu} == {4}  # a packet's measurements come together
    stamps = np.concatenate([s.t_ns for s in imu])
    assert np.diff(stamps).tolist() == [12_500_000] * (len(stamps) - 1)


def test_simulation_has_second_returns(tmp_path: Path) -> None:
    info = default_info(core, "1024x10", 64)
    layout = info.format
    layout.udp_profile_lidar = core.UDPProfileLidar.from_string("RNG19_RFL8_SIG16_NIR16_DUAL")
    info.format = layout
    (tmp_path / "a.json").write_text(info.to_json_string())
    _, items = play(driver_for("sim", "", metadata=str(tmp_path / "a.json"), imu=False), 2)
    for sample in samples(items):
        first, second = (
            sample.data[name].astype("u4") + sample.data[name + "_far"] for name in ("rng", "rng2")
        )
        behind = second > 0
        assert behind.sum() > 20 and (first > 0)[behind].all()
        # With noise of 8 mm, a second surface is where it is to a few of these.
        assert (second.astype(int) - first)[behind].min() > -60


def test_simulation_without_an_imu_keeps_the_worlds_time() -> None:
    options: dict[str, Any] = {"mode": "512x10", "beams": 32, "imu": False}
    driver = driver_for("sim", "", **options)
    specs, items = play(driver, 2)
    assert [s.name for s in specs] == ["lidar"]
    first = samples(items)[0].t_ns[0]
    assert first - (driver.origin_ns or 0) == round(511 / 512 * SWEEP_NS)


def test_simulation_skips_what_is_not_looked_at() -> None:
    """A driver that comes back after an hour is there at once: its sweeps would take minutes."""
    with opened(driver_for("sim", "", mode="512x10", beams=32, imu=False, seed=1)) as driver:
        for _ in range(36_000):
            last = driver.read()
    world = World("drive", 1)
    scene = LidarScene(core, default_info(core, "512x10", 32), world, seed=1)
    assert isinstance(last, Sample)
    expected = scene.sweep(35_999)["REFLECTIVITY"]
    np.testing.assert_array_equal(np.asarray(last.data["rfl"])[0], expected)


def test_an_imu_alone(tmp_path: Path) -> None:
    """Profile OFF: the lidar sends nothing, its IMU is recorded all the same."""
    info = make_info("OFF")
    imu = [imu_packet(T0_NS + n, DEVICE0_NS + n) for n in range(5)]
    path = write(tmp_path, info, imu)
    specs, items = play(driver_for("pcap", path))
    assert [s.name for s in specs] == ["lidar_imu"] and len(items) == 5
    with pytest.raises(SourceError, match="no lidar data, and imu is false"):
        play(driver_for("pcap", path, imu=False))
