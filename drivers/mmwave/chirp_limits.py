"""Limits of TI's radars and the DCA1000EVM: impossible and unreliable configurations.

The rules and the devices' limits are those of `xwr.constraints` (RadarML/xwr 0.5.1), which names
them "not guaranteed".  A rule that physics or memory sets is an error: the chirps cannot be made,
or their data cannot be stored or sent.  Every other rule is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.packets import PACKET_BYTES
from recorder.common.errors import ConfigError

_CARD_BITS_S: Final = 1e9  # Ethernet of the DCA1000EVM


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Limits of a device; None: unknown.

    Attributes:
        l3_bytes: memory that holds a frame's samples.
        band_ghz: lowest and highest frequency.
        ksps: lowest and highest sample rate.
        bandwidth_mhz: largest bandwidth of the samples.
    """

    l3_bytes: int
    band_ghz: tuple[float, float]
    ksps: tuple[int | None, int]
    bandwidth_mhz: float | None


_KIB: Final = 1024
_AWR1843: Final = DeviceLimits(1024 * _KIB, (76.0, 81.0), (2_000, 25_000), 4000.0)

LIMITS: Mapping[str, DeviceLimits] = {
    "AWR1642": DeviceLimits(768 * _KIB, (76.0, 81.0), (None, 12_500), 4000.0),
    "AWR1843": _AWR1843,
    "AWR1843L": _AWR1843,
    "AWR1843AOP": _AWR1843,
    "AWR2944": DeviceLimits(2560 * _KIB, (76.0, 81.0), (None, 37_500), 4000.0),
    "AWR2944P": DeviceLimits(3072 * _KIB, (76.0, 81.0), (None, 45_000), 4000.0),
    "AWRL6844": DeviceLimits(896 * _KIB, (57.0, 64.0), (None, 25_000), None),
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a chirp configuration breaks.

    Attributes:
        rule: the rule's name in `xwr.constraints`.
        message: the value and the limit.
        impossible: the chirps cannot be made, stored or sent; otherwise a warning.
        of_device: set by the device's memory or the card, not by the chirps themselves.
    """

    rule: str
    message: str
    impossible: bool = True
    of_device: bool = False


def violations(chirp: ChirpConfig, card: Mapping[str, Any] | None = None) -> list[Violation]:
    """Return the rules that a configuration breaks.

    Args:
        chirp: the configuration.
        card: ``delay`` (us) and ``socket_buffer`` (bytes) of the capture card; None: no card.
    """
    return [*_times(chirp), *_sizes(chirp), *_frequencies(chirp), *_transfer(chirp, card)]


def check_chirp(
    chirp: ChirpConfig, key: str, card: Mapping[str, Any] | None = None, *, captured: bool = False
) -> list[str]:
    """Reject an impossible configuration; return the warnings about a possible one.

    Args:
        chirp: the configuration.
        key: its path in the config, for messages.
        card: see `violations`; None also where no device holds the frames: its memory is not
            checked then.
        captured: the frames exist already, so that nothing is refused.

    Raises:
        ConfigError: the radar cannot make the chirps, or the card cannot send them; the message
            names all reasons.
    """
    found = violations(chirp, card)
    refused = [v for v in found if v.impossible and not captured and (card or not v.of_device)]
    if refused:
        reasons = "; ".join(v.message for v in refused)
        raise ConfigError(f"{chirp.device}: impossible: {reasons}", key=key)
    return [v.message for v in found]


def _times(chirp: ChirpConfig) -> Iterator[Violation]:
    end_us = chirp.adc_start_time + chirp.sample_time
    if end_us > chirp.ramp_end_time * (1 + 1e-9):
        yield Violation(
            "ExcessRampTime",
            f"the last sample is taken {end_us:.2f} us after the ramp's start, and the ramp ends "
            f"after {chirp.ramp_end_time:g} us",
        )
    share = chirp.frame_time / chirp.frame_period
    if share >= 0.99:
        yield Violation(
            "FrameDutyCycle",
            f"the chirps take {chirp.frame_time:.2f} ms of a frame period of "
            f"{chirp.frame_period:g} ms (limit: 99 %)",
            share > 1,
        )
    transmitting = chirp.ramp_end_time * chirp.antennas.tx * chirp.frame_length * 1e-3
    if transmitting >= 0.5 * chirp.frame_period:
        yield Violation(
            "RFDutyCycle",
            f"the radar transmits for {100 * transmitting / chirp.frame_period:.0f} % of the time "
            "(limit: 50 %)",
            False,
        )


def _sizes(chirp: ChirpConfig) -> Iterator[Violation]:
    limit = LIMITS[chirp.device].l3_bytes
    if chirp.frame_bytes > limit:
        yield Violation(
            "CubeSizeLimit",
            f"a frame has {chirp.frame_bytes} bytes, and the device's memory (L3) {limit}",
            of_device=True,
        )
    for rule, name in (
        ("FrameLengthPowerOfTwo", "frame_length"),
        ("AdcSamplesPowerOfTwo", "adc_samples"),
    ):
        value = getattr(chirp, name)
        if value & (value - 1):
            yield Violation(rule, f"{name} {value} is not a power of two", False)


def _frequencies(chirp: ChirpConfig) -> Iterator[Violation]:
    limits = LIMITS[chirp.device]
    low, high = limits.ksps
    if chirp.sample_rate > high:
        yield Violation("MaxSampleRate", f"sample_rate {chirp.sample_rate} ksps is above {high}")
    if low is not None and chirp.sample_rate < low:
        yield Violation("MinSampleRate", f"sample_rate {chirp.sample_rate} ksps is below {low}")
    end = chirp.frequency + chirp.bandwidth * 1e-3
    first, last = limits.band_ghz
    if chirp.frequency < first or end > last:
        yield Violation(
            "FrequencyRange",
            f"the samples span {chirp.frequency:.3f} to {end:.3f} GHz, and the device's band is "
            f"{first:g} to {last:g} GHz",
        )
    if limits.bandwidth_mhz is not None and chirp.bandwidth > limits.bandwidth_mhz:
        yield Violation(
            "MaxBandwidth",
            f"the samples span {chirp.bandwidth:.0f} MHz (limit: {limits.bandwidth_mhz:.0f} MHz)",
        )


def _transfer(chirp: ChirpConfig, card: Mapping[str, Any] | None) -> Iterator[Violation]:
    if card is None:
        return
    bits_s = chirp.frame_bytes * 8 * chirp.rate_hz
    packet = PACKET_BYTES * 8
    most = packet / (packet / _CARD_BITS_S + card["delay"] * 1e-6)
    if bits_s >= 0.8 * most:
        yield Violation(
            "NetworkUtilization",
            f"the radar makes {bits_s / 1e6:.0f} Mbit/s, and the card sends {most / 1e6:.0f} "
            f"Mbit/s with capture.delay {card['delay']:g} us (limit: 80 %)",
            bits_s > most,
            of_device=True,
        )
    if card["socket_buffer"] < 2 * chirp.frame_bytes:
        yield Violation(
            "ReceiveBuffer",
            f"capture.socket_buffer {card['socket_buffer']} holds less than two frames of "
            f"{chirp.frame_bytes} bytes",
            False,
        )
