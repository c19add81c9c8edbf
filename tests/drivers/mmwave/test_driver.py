from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from drivers.kit.driver import Lost, Sample
from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.driver import SIM_CHIRP, MmwaveDriver
from drivers.mmwave.model import SimulatedRadar
from drivers.mmwave.simulated import FramePackets
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ConfigError, SourceError
from recorder.config.options import Option, check_options, table_to_wire
from tests.drivers.mmwave.rig import QUICK
from tests.support.devices import (
    causes,
    column,
    losses,
    make_driver,
    opened,
    play,
    read_all,
    samples,
    states,
    streaming,
    times,
)

SMALL = {**QUICK, "adc_samples": 8, "frame_length": 4, "frame_period": 33.3}
SMALL_SHAPE = (4, 2, 4, 16)
SMALL_BYTES = 1024


def driver(
    address: Path | str, scheme: str = "file", name: str = "radar", **options: Any
) -> MmwaveDriver:
    return make_driver(MmwaveDriver, name, scheme, address, **options)


def frames(count: int, seed: int = 0) -> npt.NDArray[np.int16]:
    rng = np.random.default_rng(seed)
    return rng.integers(-32768, 32768, (count, *SMALL_SHAPE)).astype("<i2")


def test_a_file_comes_back_value_for_value(tmp_path: Path) -> None:
    data = frames(5)
    (tmp_path / "a.bin").write_bytes(data.tobytes())
    spec, items = play(driver(tmp_path / "a.bin", name="front", radar=SMALL, iq_order="iiqq"))

    assert spec.name == "front"
    assert spec.finite
    assert spec.rate_hz == pytest.approx(1000 / 33.3)
    assert [(c.name, c.format, c.dtype, c.shape) for c in spec.channels] == [
        ("iq", "raw", "i2", SMALL_SHAPE),
        ("valid", "raw", "u1", ()),
    ]
    assert all(isinstance(item, Sample) and item.stream == "front" for item in items)
    np.testing.assert_array_equal(column(items, "iq"), data)
    assert times(items).tolist() == [
        0, 33_300_000, 66_600_000, 99_900_000, 133_200_000,
    ]  # fmt: skip
    for item in items:
        assert isinstance(item, Sample)
        assert np.asarray(item.data["iq"]).dtype == spec.channel("iq").np_dtype
        valid = np.asarray(item.data["valid"])
        assert valid.dtype == np.uint8
        assert valid.tolist() == [1]


def test_the_kit_may_keep_every_frame(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(frames(3).tobytes())
    with opened(driver(tmp_path / "a.bin", radar=SMALL)) as radar:
        arrays = [np.asarray(i.data["iq"]) for i in read_all(radar) if isinstance(i, Sample)]
    assert not any(np.shares_memory(a, b) for a, b in pairwise(arrays))
    assert all(a.flags.c_contiguous for a in arrays)


def test_radar_json(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(frames(1).tobytes())
    spec, _ = play(driver(tmp_path / "a.bin", radar=SMALL, iq_order="iiqq"))
    written = json.loads(spec.files["radar.json"])
    assert spec.files["radar.json"] == json.dumps(written, indent=4) + "\n"  # people read it
    chirp = ChirpConfig(**SMALL)
    assert written["range_resolution"] == chirp.range_resolution
    assert written["doppler_resolution"] == chirp.doppler_resolution
    assert written["iq_order"] == "iiqq"
    assert written["shape"] == [4, 2, 4, 8]
    assert {key: written[key] for key in SMALL} == SMALL
    assert spec.settings["capture"]["data_port"] == 4098
    assert StreamSpec.from_wire(json.loads(json.dumps(spec.to_wire()))).meta() == spec.meta()


def test_real_samples_have_half_the_values(tmp_path: Path) -> None:
    options = {**SMALL, "device": "AWR2944"}
    (tmp_path / "a.bin").write_bytes(bytes(2 * 4 * 4 * 4 * 8))
    with streaming(driver(tmp_path / "a.bin", radar=options)) as (radar, spec):
        assert spec.channel("iq").shape == (4, 4, 4, 8)
        assert json.loads(spec.files["radar.json"])["iq_order"] is None
        assert len(read_all(radar)) == 1


@pytest.mark.parametrize("tail", [1, 2, SMALL_BYTES - 1])
def test_a_cut_tail_is_one_counted_loss(tmp_path: Path, tail: int) -> None:
    data = frames(3).tobytes()
    (tmp_path / "a.bin").write_bytes(data[: 2 * SMALL_BYTES + tail])
    _, (*items, lost) = play(driver(tmp_path / "a.bin", radar=SMALL))
    np.testing.assert_array_equal(column(items, "iq"), frames(3)[:2])
    assert isinstance(lost, Lost)
    assert (lost.stream, lost.cause, lost.count, lost.t_ns) == (
        "radar", "truncated", 1, 66_600_000,
    )  # fmt: skip
    assert lost.detail == {"file": "a.bin", "bytes": tail, "frame_bytes": SMALL_BYTES}


def test_open_again_plays_again(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(frames(2).tobytes()[:-5])
    radar = driver(tmp_path / "a.bin", radar=SMALL)
    for _ in range(3):
        _, run = play(radar)
        assert [type(item) for item in run] == [Sample, Lost]
        assert np.asarray(run[0].t_ns).tolist() == [0]
        np.testing.assert_array_equal(column(run, "iq"), frames(2)[:1])


def test_a_folder_is_played_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    data = frames(6)
    (tmp_path / "10.bin").write_bytes(data[4:].tobytes())
    (tmp_path / "2.bin").write_bytes(data[1:4].tobytes()[:-3])
    (tmp_path / "1.bin").write_bytes(data[:1].tobytes())
    (tmp_path / "3.bin").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("not a frame")
    _, items = play(driver(tmp_path, radar=SMALL))
    assert [type(item) for item in items] == [Sample] * 3 + [Lost] + [Sample] * 2
    np.testing.assert_array_equal(column(items, "iq"), data[[0, 1, 2, 4, 5]])
    stamps = [int(np.max(item.t_ns)) for item in items]  # the lost frame keeps its place in time
    assert stamps == [round(k * 33.3e6) for k in range(6)]


def test_a_file_with_packet_headers_is_played_as_packets_from_the_network(tmp_path: Path) -> None:
    """TI's recorder writes u4 number, u4 bytes of data, u6 bytes before it; five are lost."""
    data = frames(40)
    raw = data.tobytes()
    records = [
        struct.pack("<IIIH", n + 1, len(raw[at : at + 1456]), at, 0) + raw[at : at + 1456]
        for n, at in enumerate(range(0, len(raw), 1456))
    ]
    records[10:11] = records[10:11] * 2
    (tmp_path / "a.bin").write_bytes(b"".join(records[:4] + records[5:20] + records[24:]))
    _, items = play(driver(tmp_path / "a.bin", radar=SMALL))
    got = samples(items)
    for sample in got:
        index = round(int(sample.t_ns[0]) / 33.3e6)
        if np.asarray(sample.data["valid"])[0]:
            np.testing.assert_array_equal(np.asarray(sample.data["iq"])[0], data[index])
    incomplete = [state for state in states(items) if "frame" in state]
    invalid = [s for s in got if not np.asarray(s.data["valid"])[0]]
    assert len(incomplete) == len(invalid) == 4
    assert {cause for cause, _ in causes(items)} == {"network"}
    assert sum(count or 0 for _, count in causes(items)) + len(got) == 40
    found = [*incomplete, *(item.detail for item in losses(items))]
    assert sum(each["packets_lost"] for each in found) == 5
    assert states(items)[-1] == {"packets_duplicate": 1}


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES - 1])
def test_less_than_a_frame_names_what_is_needed(tmp_path: Path, size: int) -> None:
    path = tmp_path / "short.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(SourceError) as caught:
        driver(path, radar=SMALL).open()
    for word in ("radar", str(path), f"{size} bytes", str(SMALL_BYTES), "4 x 2 x 4 x 16"):
        assert word in str(caught.value)


def test_a_folder_without_a_capture(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no \.bin file"):
        driver(tmp_path, radar=SMALL).open()


def test_a_file_that_vanishes_between_loops(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(frames(1).tobytes())
    radar = driver(path, radar=SMALL)
    radar.open()
    read_all(radar)
    radar.close()
    path.unlink()
    with pytest.raises(SourceError, match="no such file"):
        radar.open()


def test_a_file_that_shrinks_while_it_is_played(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(frames(4).tobytes())
    radar = driver(path, radar=SMALL)
    radar.open()
    radar.read()
    with path.open("r+b") as file:
        file.truncate(SMALL_BYTES + 100)
    (lost,) = read_all(radar)
    assert isinstance(lost, Lost)
    assert lost.detail["bytes"] == 100


def test_a_capture_needs_its_chirp_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(4096))
    partial = {k: v for k, v in SMALL.items() if k not in ("adc_samples", "device")}
    with pytest.raises(ConfigError, match=r"radar\.radar: missing: device, adc_samples"):
        driver(tmp_path / "a.bin", radar=partial).open()


def test_odd_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"radar\.radar\.adc_samples: 7 is odd"):
        driver("", "sim", radar={"adc_samples": 7}).open()


def test_a_simulated_radar_cannot_do_the_impossible_and_a_capture_exists(tmp_path: Path) -> None:
    impossible = {**SMALL, "ramp_end_time": 6.0, "frame_length": 3}
    with pytest.raises(ConfigError, match=r"radar\.radar: AWR1642: impossible: the last sample"):
        driver("", "sim", radar=impossible).open()
    (tmp_path / "a.bin").write_bytes(bytes(768))
    radar = driver(tmp_path / "a.bin", radar=impossible)
    (spec,) = radar.open()
    radar.close()
    assert [w.split()[0] for w in radar.warnings] == ["the", "frame_length"]
    assert spec.settings["warnings"] == radar.warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radar": {"device": "AWR1844"}}, "did you mean 'AWR1843'"),
        ({"radar": {"adc_sample": 8}}, "did you mean 'adc_samples'"),
        ({"radar": {"frame_period": 0}}, "below the minimum"),
        ({"radar": {"freq_slope": -5}}, "below the minimum"),
        ({"radar": {"sample_rate": 5.5}}, "a whole number"),
        ({"capture": {"data_port": 70000}}, "above the maximum"),
        ({"capture": {"delays": 5}}, "did you mean 'delay'"),
        ({"iq_order": "iqiq"}, "not one of qqii, iiqq"),
    ],
)
def test_options_are_checked(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_options(MmwaveDriver.options, options)


def test_red_rovers_keys_are_all_known() -> None:
    radar = {**SMALL, "tx_start_time": 1.0, "port": "/dev/ttyACM0"}
    capture = {
        "sys_ip": "192.168.33.30",
        "fpga_ip": "192.168.33.180",
        "data_port": 4098,
        "config_port": 4096,
        "timeout": 1.0,
        "socket_buffer": 16777216,
        "delay": 60.0,
    }
    table = msgspec.convert(
        json.loads(json.dumps(table_to_wire(MmwaveDriver.options))), dict[str, Option]
    )
    checked = check_options(table, {"radar": radar, "capture": capture})
    assert checked["radar"] == radar
    assert checked["capture"] == capture


# The simulated radar; tests/drivers/world has what it shows


def played(count: int, **options: Any) -> list[Sample]:
    with opened(driver("", "sim", **options)) as radar:
        items = [radar.read() for _ in range(count)]
    return [item for item in items if isinstance(item, Sample)]


def test_sim_is_the_same_for_the_same_options() -> None:
    def first(**options: Any) -> list[bytes]:
        samples = played(4, radar={**SMALL, "adc_samples": 64}, **options)
        return [np.asarray(sample.data["iq"]).tobytes() for sample in samples]

    assert len(set(first(seed=3))) == 4
    assert first(seed=3) == first(seed=3)
    for other in ({"seed": 4}, {"scene": "parked"}, {"noise": 0.5}, {"iq_order": "iiqq"}):
        assert set(first(seed=3)).isdisjoint(first(**{"seed": 3, **other}))
    aside = first(seed=3, mount={"translation_m": [3.7, 0.5, 0.6]})
    assert set(first(seed=3)).isdisjoint(aside)


def test_sim_stream_and_stamps() -> None:
    """A frame is stamped when its last chirp ends; the world begins at 0."""
    with streaming(driver("", "sim", radar={"frame_period": 40.0})) as (radar, spec):
        assert not spec.finite and radar.origin_ns == 0
        assert spec.rate_hz == 25.0
        assert spec.channel("iq").shape == SIM_CHIRP.shape
        for _ in range(2):  # a second open starts afresh
            samples = [radar.read() for _ in range(3)]
            assert [np.asarray(s.t_ns).tolist() for s in samples if isinstance(s, Sample)] == [
                [7_680_000], [47_680_000], [87_680_000],
            ]  # fmt: skip
            for sample in samples:
                assert isinstance(sample, Sample)
                values = np.asarray(sample.data["iq"])
                assert (values.shape, values.dtype) == ((1, *SIM_CHIRP.shape), np.dtype("<i2"))
                assert np.asarray(sample.data["valid"]).tolist() == [1]
                assert 50 < np.abs(values.astype(int)).max() < 32767
            radar.close()
            radar.open()


def test_sim_skips_what_is_not_looked_at() -> None:
    """A driver that comes back after an hour is there at once: 72000 frames would take minutes."""
    with opened(driver("", "sim")) as radar:
        for _ in range(72_000):
            last = radar.read()
    assert isinstance(last, Sample) and int(last.t_ns[0]) == 71_999 * 50_000_000 + 7_680_000
    expected = SimulatedRadar(SIM_CHIRP, "qqii").frame(71_999)
    np.testing.assert_array_equal(np.asarray(last.data["iq"])[0], expected)


def test_sim_goes_through_the_packets_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost among the packets of the simulation is missing in its frames."""
    whole = FramePackets.holding

    def first() -> tuple[list[int], bytes]:
        (sample,) = played(1, radar={**SMALL, "frame_length": 512, "frame_period": 60.0}, seed=3)
        valid, values = np.asarray(sample.data["valid"]), np.asarray(sample.data["iq"])
        return valid.tolist(), values.tobytes()

    valid, full = first()
    assert valid == [1]
    monkeypatch.setattr(
        FramePackets, "holding", lambda packets, k: np.delete(whole(packets, k), [50], axis=0)
    )
    valid, cut = first()
    assert valid == [0]
    assert cut == full[: 50 * 1456] + bytes(1456) + full[51 * 1456 :]


def test_two_simulated_radars_have_their_own_noise() -> None:
    def first(name: str, noise: float) -> npt.NDArray[np.int16]:
        with opened(driver("", "sim", name=name, seed=2, noise=noise)) as radar:
            item = radar.read()
        assert isinstance(item, Sample)
        return np.asarray(item.data["iq"])

    np.testing.assert_array_equal(first("left", 0.0), first("right", 0.0))
    still = first("left", 0.0).astype(float).ravel()
    left, right = (first(name, 1.0).ravel() - still for name in ("left", "right"))
    assert left.std() > 10 and abs(np.corrcoef(left, right)[0, 1]) < 0.01


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ({"translation_m": [1.0, 2.0]}, "radar: mount.translation_m: 2 numbers instead of 3"),
        ({"quaternion_xyzw": [1.0, 1.0, 0.0, 0.0]}, r"radar: mount\.quaternion_xyzw: of length"),
    ],
)
def test_a_mount_that_is_none(mount: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        driver("", "sim", mount=mount).open()


def test_radar_json_says_where_antennas_and_times_are() -> None:
    radar = driver("", "sim")
    (spec,) = radar.open()
    described = json.loads(spec.files["radar.json"])
    half_wave = 299_792_458.0 / 77e9 / 2
    assert described["antennas"]["tx_m"] == [
        [0.0, 0.0, 0.0], [0.0, 2 * half_wave, half_wave], [0.0, 4 * half_wave, 0.0],
    ]  # fmt: skip
    assert described["antennas"]["rx_m"] == [[0.0, k * half_wave, 0.0] for k in range(4)]
    assert described["antennas"]["tx_turns"] == [0.0, 0.0, 0.0]
    assert described["chirp_time"] == 120.0 and described["frame_time"] == pytest.approx(7.68)
