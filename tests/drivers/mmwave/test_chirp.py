from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.mmwave.chirp import DEVICES, IQ_ORDERS, ChirpConfig, lane_columns

# red-rover's four configurations, with what xwr's XWRConfig makes of them.
DART = ChirpConfig("AWR1843", 77.0, 331.0, 5.7, 59.0, 67.012, 128, 2500, 128, 100.0)
BIKE = ChirpConfig("AWR1843", 77.0, 6.0, 5.7, 34.0, 67.012, 256, 10000, 64, 50.0)
INDOOR = ChirpConfig("AWR1843", 77.0, 200.0, 5.7, 59.0, 67.012, 256, 5000, 64, 50.0)
OUTDOOR = ChirpConfig("AWR1843", 77.0, 120.0, 5.7, 59.0, 33.506, 256, 5000, 64, 50.0)


@pytest.mark.parametrize(
    ("chirp", "shape", "range_m", "doppler_mps", "max_doppler_mps"),
    [
        (DART, (128, 3, 4, 256), 0.04368860387178789, 0.012654128860357302, 0.8098642470628673),
        (BIKE, (64, 3, 4, 512), 0.08737720774357578, 0.24946072982009918, 7.982743354243174),
        (INDOOR, (64, 3, 4, 512), 0.04368860387178789, 0.03810895950223435, 1.2194867040714992),
        (OUTDOOR, (64, 3, 4, 512), 0.08737720774357578, 0.05588182275609268, 1.7882183281949657),
    ],
)
def test_resolutions_are_those_of_xwr(
    chirp: ChirpConfig,
    shape: tuple[int, ...],
    range_m: float,
    doppler_mps: float,
    max_doppler_mps: float,
) -> None:
    assert chirp.shape == shape
    assert chirp.range_resolution == pytest.approx(range_m, rel=1e-12)
    assert chirp.doppler_resolution == pytest.approx(doppler_mps, rel=1e-12)
    assert chirp.max_doppler == pytest.approx(max_doppler_mps, rel=1e-12)


def test_range_resolution_is_half_the_speed_of_light_over_the_bandwidth() -> None:
    # 100 MHz/us over 10 us of sampling are 1 GHz: the textbook's 15 cm.
    chirp = replace(BIKE, freq_slope=100.0, adc_samples=100, sample_rate=10_000)
    assert chirp.bandwidth == pytest.approx(1000.0)
    assert chirp.range_resolution == pytest.approx(0.149896229)
    assert chirp.max_range == pytest.approx(14.9896229)


@pytest.mark.parametrize(
    ("device", "shape"),
    [
        ("AWR1642", (64, 2, 4, 512)),
        ("AWR1843", (64, 3, 4, 512)),
        ("AWR1843L", (64, 2, 4, 512)),
        ("AWR2944", (64, 4, 4, 256)),
        ("AWRL6844", (64, 4, 4, 256)),
    ],
)
def test_shapes_by_device(device: str, shape: tuple[int, ...]) -> None:
    chirp = replace(BIKE, device=device)
    assert chirp.shape == shape
    assert chirp.cube_shape == (*shape[:3], 256)
    assert chirp.frame_bytes == 2 * np.prod(shape)
    assert chirp.intrinsics("iiqq")["iq_order"] == (
        "iiqq" if DEVICES[device].complex_samples else None
    )


def test_real_samples_tell_half_the_range() -> None:
    real = replace(BIKE, device="AWR2944")
    assert real.max_range == pytest.approx(BIKE.max_range / 2)


def test_times_and_rates() -> None:
    assert BIKE.chirp_time == 120.0
    assert BIKE.frame_time == pytest.approx(7.68)
    assert BIKE.rate_hz == 20.0
    assert BIKE.frame_bytes * BIKE.rate_hz == pytest.approx(15.7e6, rel=0.01)


def test_intrinsics_are_json_with_the_keys_that_roverd_reads() -> None:
    back = json.loads(json.dumps(BIKE.intrinsics("qqii")))
    assert back["range_resolution"] == BIKE.range_resolution
    assert back["doppler_resolution"] == BIKE.doppler_resolution
    assert back["shape"] == [64, 3, 4, 256]
    assert back["raw_shape"] == [64, 3, 4, 512]
    fields = set(ChirpConfig.__dataclass_fields__)
    assert ChirpConfig(**{k: v for k, v in back.items() if k in fields}) == BIKE


def test_lane_orders_as_documented() -> None:
    i, q = (c.tolist() for c in lane_columns(4, "qqii"))
    assert (q, i) == ([0, 1, 4, 5], [2, 3, 6, 7])
    i, q = (c.tolist() for c in lane_columns(4, "iiqq"))
    assert (i, q) == ([0, 1, 4, 5], [2, 3, 6, 7])


@given(st.integers(1, 64), st.sampled_from(IQ_ORDERS))
def test_lane_columns_use_every_value_once(pairs: int, order: str) -> None:
    i, q = lane_columns(2 * pairs, order)
    assert sorted([*i.tolist(), *q.tolist()]) == list(range(4 * pairs))
    assert (np.abs(i - q) == 2).all()


@pytest.mark.parametrize(("samples", "order"), [(3, "qqii"), (4, "iqiq")])
def test_lane_columns_refuse(samples: int, order: str) -> None:
    with pytest.raises(ValueError, match=f"{samples} samples"):
        lane_columns(samples, order)
