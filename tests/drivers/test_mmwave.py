from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers._kit.driver import EndOfSource, Lost, Sample, SensorConfig
from drivers._protocols.chirp import ChirpConfig, to_complex
from drivers.mmwave import SIM_CHIRP, MmwaveDriver
from drivers.sim.radar import SimulatedRadar
from recorder.contract.errors import ConfigError, SourceError
from recorder.contract.options import check_options, table_from_wire, table_to_wire
from recorder.contract.streams import StreamSpec

SMALL: dict[str, Any] = {
    "device": "AWR1642",
    "frequency": 77.0,
    "idle_time": 10.0,
    "adc_start_time": 5.0,
    "ramp_end_time": 40.0,
    "freq_slope": 60.0,
    "adc_samples": 8,
    "sample_rate": 5000,
    "frame_length": 4,
    "frame_period": 33.3,
}
SMALL_SHAPE = (4, 2, 4, 16)
SMALL_BYTES = 1024


def driver(
    address: Path | str, scheme: str = "file", name: str = "radar", **options: Any
) -> MmwaveDriver:
    checked = check_options(MmwaveDriver.options, options)
    return MmwaveDriver(SensorConfig(name, scheme, str(address), checked))


def frames(count: int, seed: int = 0) -> npt.NDArray[np.int16]:
    rng = np.random.default_rng(seed)
    return rng.integers(-32768, 32768, (count, *SMALL_SHAPE)).astype("<i2")


def drain(opened: MmwaveDriver) -> list[Sample | Lost]:
    items = []
    with pytest.raises(EndOfSource):
        while True:
            item = opened.read()
            assert isinstance(item, (Sample, Lost))
            items.append(item)
    return items


def iq(items: list[Sample | Lost]) -> npt.NDArray[np.int16]:
    parts = [np.asarray(s.data["iq"]) for s in items if isinstance(s, Sample)]
    return np.concatenate(parts)


def test_a_file_comes_back_value_for_value(tmp_path: Path) -> None:
    data = frames(5)
    (tmp_path / "a.bin").write_bytes(data.tobytes())
    radar = driver(tmp_path / "a.bin", name="front", radar=SMALL, iq_order="iiqq")
    (spec,) = radar.open()
    items = drain(radar)
    radar.close()

    assert spec.name == "front"
    assert spec.finite
    assert spec.rate_hz == pytest.approx(1000 / 33.3)
    assert [(c.name, c.format, c.dtype, c.shape) for c in spec.channels] == [
        ("iq", "raw", "i2", SMALL_SHAPE),
        ("valid", "raw", "u1", ()),
    ]
    assert all(isinstance(item, Sample) and item.stream == "front" for item in items)
    np.testing.assert_array_equal(iq(items), data)
    assert [int(i.t_ns[0]) for i in items if isinstance(i, Sample)] == [
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
    radar = driver(tmp_path / "a.bin", radar=SMALL)
    radar.open()
    arrays = [np.asarray(i.data["iq"]) for i in drain(radar) if isinstance(i, Sample)]
    assert not any(np.shares_memory(a, b) for a, b in pairwise(arrays))
    assert all(a.flags.c_contiguous for a in arrays)


def test_radar_json(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(frames(1).tobytes())
    radar = driver(tmp_path / "a.bin", radar=SMALL, iq_order="iiqq")
    (spec,) = radar.open()
    radar.close()
    written = json.loads(spec.files["radar.json"])
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
    radar = driver(tmp_path / "a.bin", radar=options)
    (spec,) = radar.open()
    assert spec.channel("iq").shape == (4, 4, 4, 8)
    assert json.loads(spec.files["radar.json"])["iq_order"] is None
    assert len(drain(radar)) == 1


@pytest.mark.parametrize("tail", [1, 2, SMALL_BYTES - 1])
def test_a_cut_tail_is_one_counted_loss(tmp_path: Path, tail: int) -> None:
    data = frames(3).tobytes()
    (tmp_path / "a.bin").write_bytes(data[: 2 * SMALL_BYTES + tail])
    radar = driver(tmp_path / "a.bin", radar=SMALL)
    radar.open()
    *samples, lost = drain(radar)
    np.testing.assert_array_equal(iq(samples), frames(3)[:2])
    assert isinstance(lost, Lost)
    assert (lost.stream, lost.cause, lost.count, lost.t_ns) == (
        "radar", "truncated", 1, 66_600_000,
    )  # fmt: skip
    assert lost.detail == {"file": "a.bin", "bytes": tail, "frame_bytes": SMALL_BYTES}


def test_open_again_plays_again(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(frames(2).tobytes()[:-5])
    radar = driver(tmp_path / "a.bin", radar=SMALL)
    runs = []
    for _ in range(3):
        radar.open()
        runs.append(drain(radar))
        radar.close()
    for run in runs:
        assert [type(item) for item in run] == [Sample, Lost]
        assert np.asarray(run[0].t_ns).tolist() == [0]
        np.testing.assert_array_equal(iq(run), frames(2)[:1])


def test_a_folder_is_played_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    data = frames(6)
    (tmp_path / "10.bin").write_bytes(data[4:].tobytes())
    (tmp_path / "2.bin").write_bytes(data[1:4].tobytes()[:-3])
    (tmp_path / "1.bin").write_bytes(data[:1].tobytes())
    (tmp_path / "3.bin").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("not a frame")
    radar = driver(tmp_path, radar=SMALL)
    radar.open()
    items = drain(radar)
    assert [type(item) for item in items] == [Sample] * 3 + [Lost] + [Sample] * 2
    np.testing.assert_array_equal(iq(items), data[[0, 1, 2, 4, 5]])
    stamps = [int(np.max(item.t_ns)) for item in items]  # the lost frame keeps its place in time
    assert stamps == [round(k * 33.3e6) for k in range(6)]


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES - 1])
def test_less_than_a_frame_names_what_is_needed(tmp_path: Path, size: int) -> None:
    path = tmp_path / "short.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(SourceError) as caught:
        driver(path, radar=SMALL).open()
    for word in ("radar", str(path), f"{size} bytes", str(SMALL_BYTES), "4 x 2 x 4 x 16"):
        assert word in str(caught.value)


def test_missing_sources(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.bin: no such file"):
        driver(tmp_path / "none.bin", radar=SMALL).open()
    with pytest.raises(SourceError, match=r"no \.bin file"):
        driver(tmp_path, radar=SMALL).open()


def test_a_file_that_vanishes_between_loops(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(frames(1).tobytes())
    radar = driver(path, radar=SMALL)
    radar.open()
    drain(radar)
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
    (lost,) = drain(radar)
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
    table = table_from_wire(json.loads(json.dumps(table_to_wire(MmwaveDriver.options))))
    checked = check_options(table, {"radar": radar, "capture": capture})
    assert checked["radar"] == radar
    assert checked["capture"] == capture


# The simulated radar


def peak(cube: npt.NDArray[np.complex64]) -> tuple[int, int]:
    """(Doppler bin, range bin) of the strongest cell over all antennas."""
    spectrum = np.abs(np.fft.fft2(cube, axes=(0, 3))).sum(axis=(1, 2))
    doppler, bin_ = np.unravel_index(int(spectrum.argmax()), spectrum.shape)
    return int(doppler), int(bin_)


@pytest.mark.parametrize("order", ["qqii", "iiqq"])
@pytest.mark.parametrize("index", [0, 37, 200])
@pytest.mark.parametrize("seed", [0, 5])
def test_the_strongest_target_is_where_it_should_be(order: str, index: int, seed: int) -> None:
    radar = SimulatedRadar(SIM_CHIRP, order, seed)
    target = radar.targets(index)[0]
    doppler, bin_ = peak(to_complex(radar.frame(index), order))
    assert abs(bin_ - target.range_m / SIM_CHIRP.range_resolution) <= 0.6
    expected = target.velocity_mps / SIM_CHIRP.doppler_resolution
    signed = (doppler + 32) % 64 - 32
    assert abs(signed - expected) <= 0.6


@pytest.mark.parametrize("index", [0, 37])
def test_the_wrong_order_mirrors_the_range(index: int) -> None:
    # I and Q in each other's places conjugate the tones (times j): bin b appears at N - b.
    radar = SimulatedRadar(SIM_CHIRP, "qqii")
    bin_ = peak(to_complex(radar.frame(index), "qqii"))[1]
    assert peak(to_complex(radar.frame(index), "iiqq"))[1] == 256 - bin_


def test_both_orders_show_the_same_targets() -> None:
    a = to_complex(SimulatedRadar(SIM_CHIRP, "qqii").frame(3), "qqii")
    b = to_complex(SimulatedRadar(SIM_CHIRP, "iiqq").frame(3), "iiqq")
    assert np.corrcoef(a.real.ravel(), b.real.ravel())[0, 1] > 0.99
    assert np.corrcoef(a.imag.ravel(), b.imag.ravel())[0, 1] > 0.99


def test_all_targets_stand_out_of_the_noise() -> None:
    radar = SimulatedRadar(SIM_CHIRP, "qqii")
    cube = to_complex(radar.frame(0), "qqii")
    window = np.hanning(64)[:, None, None, None] * np.hanning(256)
    spectrum = np.abs(np.fft.fft2(cube * window, axes=(0, 3))).sum(axis=(1, 2))
    floor = np.median(spectrum)
    for target in radar.targets(0):
        bin_ = round(target.range_m / SIM_CHIRP.range_resolution)
        doppler = round(target.velocity_mps / SIM_CHIRP.doppler_resolution) % 64
        assert spectrum[doppler, bin_] > 30 * floor


def test_the_strongest_target_is_at_its_angle() -> None:
    radar = SimulatedRadar(SIM_CHIRP, "qqii")
    target = radar.targets(0)[0]
    cube = to_complex(radar.frame(0), "qqii")
    spectrum = np.fft.fft2(cube, axes=(0, 3))
    doppler, bin_ = peak(cube)
    receivers = spectrum[doppler, 0, :, bin_]  # one transmitter: no motion between antennas
    step = np.angle((receivers[1:] * receivers[:-1].conj()).sum())
    expected = np.pi * np.sin(target.azimuth_rad)
    assert abs((step - expected + np.pi) % (2 * np.pi) - np.pi) < 0.05


def test_targets_move_by_their_velocity() -> None:
    radar = SimulatedRadar(SIM_CHIRP, "qqii")
    for index in (0, 50, 111):
        for now, then in zip(radar.targets(index), radar.targets(index + 1), strict=True):
            mean = (now.velocity_mps + then.velocity_mps) / 2
            assert then.range_m - now.range_m == pytest.approx(mean * 0.05, abs=1e-4)
            assert 0 < now.range_m < SIM_CHIRP.max_range
            assert abs(now.velocity_mps) < SIM_CHIRP.max_doppler


@pytest.mark.parametrize("device", ["AWR2944", "AWRL6844"])
def test_real_samples_show_the_target_too(device: str) -> None:
    chirp = ChirpConfig(**{**SMALL, "device": device, "adc_samples": 128, "frame_length": 32})
    radar = SimulatedRadar(chirp, "qqii")
    frame = radar.frame(0)
    assert frame.shape == (32, 4, 4, 128)
    spectrum = np.abs(np.fft.rfft(frame.astype(float), axis=3)).sum(axis=(0, 1, 2))
    bin_ = radar.targets(0)[0].range_m / chirp.range_resolution
    assert abs(int(spectrum.argmax()) - bin_) <= 0.6


def test_sim_is_the_same_for_the_same_seed() -> None:
    def first(seed: int) -> list[bytes]:
        radar = driver("", "sim", seed=seed)
        radar.open()
        items = [radar.read() for _ in range(4)]
        radar.close()
        return [np.asarray(i.data["iq"]).tobytes() for i in items if isinstance(i, Sample)]

    assert len(set(first(3))) == 4
    assert first(3) == first(3)
    assert set(first(3)).isdisjoint(first(4))


def test_sim_stream_and_stamps() -> None:
    radar = driver("", "sim", radar={"frame_period": 40.0})
    (spec,) = radar.open()
    assert not spec.finite
    assert spec.rate_hz == 25.0
    assert spec.channel("iq").shape == SIM_CHIRP.shape
    for _ in range(2):  # a second open starts afresh
        samples = [radar.read() for _ in range(3)]
        assert [np.asarray(s.t_ns).tolist() for s in samples] == [[0], [40_000_000], [80_000_000]]
        for sample in samples:
            assert isinstance(sample, Sample)
            values = np.asarray(sample.data["iq"])
            assert (values.shape, values.dtype) == ((1, *SIM_CHIRP.shape), np.dtype("<i2"))
            assert np.abs(values).max() < 8000
        radar.close()
        radar.open()
