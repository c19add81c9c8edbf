"""Chirps that a radar cannot make, by the rules of xwr."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drivers.mmwave.chirp import DEVICES, ChirpConfig
from drivers.mmwave.chirp_limits import LIMITS, check_chirp, violations
from recorder.common.errors import ConfigError

GOOD = ChirpConfig("AWR1843", 77.0, 6.0, 5.7, 34.0, 67.012, 256, 10_000, 64, 50.0)
CARD = {"delay": 5.0, "socket_buffer": 6_291_456}
BAD = ChirpConfig("AWR1843", 77.0, 6.0, 5.7, 34.0, 110.0, 500, 10_000, 160, 17.0)
"""Breaks ten rules."""


def broken(chirp: ChirpConfig, card: dict[str, Any] | None = CARD) -> list[str]:
    return [v.rule for v in violations(chirp, card)]


def test_a_good_chirp_breaks_no_rule() -> None:
    assert broken(GOOD) == []
    assert check_chirp(GOOD, "radar.radar", CARD) == []
    assert set(LIMITS) == set(DEVICES)


def test_ten_violations_are_named_together() -> None:
    assert set(broken(BAD)) == {
        "ExcessRampTime", "FrameDutyCycle", "RFDutyCycle", "CubeSizeLimit",
        "FrameLengthPowerOfTwo", "AdcSamplesPowerOfTwo", "FrequencyRange", "MaxBandwidth",
        "NetworkUtilization", "ReceiveBuffer",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"^radar\.radar: AWR1843: impossible: ") as caught:
        check_chirp(BAD, "radar.radar", CARD)
    for words in (
        "the last sample is taken 55.70 us after the ramp's start, and the ramp ends after 34 us",
        "the chirps take 19.20 ms of a frame period of 17 ms",
        "a frame has 3840000 bytes, and the device's memory (L3) 1048576",
        "the samples span 77.000 to 82.500 GHz, and the device's band is 76 to 81 GHz",
        "the samples span 5500 MHz",
        "the radar makes 1807 Mbit/s",
    ):
        assert words in str(caught.value)
    assert "power of two" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "card", "rule", "impossible"),
    [
        ({"ramp_end_time": 31.29}, {}, "ExcessRampTime", True),
        ({"frame_period": 7.68}, {}, "FrameDutyCycle", False),
        ({"frame_period": 7.6}, {}, "FrameDutyCycle", True),
        ({"frame_period": 13.0}, {}, "RFDutyCycle", False),
        ({"frame_length": 128}, {}, "CubeSizeLimit", True),
        ({"frame_length": 60}, {}, "FrameLengthPowerOfTwo", False),
        ({"adc_samples": 254}, {}, "AdcSamplesPowerOfTwo", False),
        ({"sample_rate": 25_001}, {}, "MaxSampleRate", True),
        ({"sample_rate": 1_999}, {}, "MinSampleRate", True),
        ({"frequency": 75.9}, {}, "FrequencyRange", True),
        ({"frequency": 79.4}, {}, "FrequencyRange", True),
        ({"freq_slope": 157.0, "frequency": 76.9}, {}, "MaxBandwidth", True),
        ({}, {"delay": 80.0}, "NetworkUtilization", False),
        ({}, {"delay": 100.0}, "NetworkUtilization", True),
        ({}, {"socket_buffer": 1_572_863}, "ReceiveBuffer", False),
    ],
)
def test_each_rule(
    change: dict[str, Any], card: dict[str, Any], rule: str, impossible: bool
) -> None:
    found = {v.rule: v for v in violations(replace(GOOD, **change), CARD | card)}
    assert found[rule].impossible == impossible
    if impossible:
        with pytest.raises(ConfigError):
            check_chirp(replace(GOOD, **change), "radar.radar", CARD | card)
    elif not any(v.impossible for v in found.values()):
        warnings = check_chirp(replace(GOOD, **change), "radar.radar", CARD | card)
        assert found[rule].message in warnings


def test_a_capture_exists_and_is_not_refused() -> None:
    assert len(check_chirp(BAD, "radar.radar", captured=True)) == 8


def test_memory_and_network_bind_devices_alone() -> None:
    large = replace(GOOD, frame_length=128)
    (warning,) = check_chirp(large, "radar.radar")
    assert "memory (L3)" in warning
    with pytest.raises(ConfigError, match="the last sample"):
        check_chirp(replace(GOOD, ramp_end_time=20.0), "radar.radar")
