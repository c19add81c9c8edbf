"""Fingerprints: equal for a repeated sample, different for a changed one."""

from __future__ import annotations

import lzma
from dataclasses import replace

import numpy as np
import pytest

from drivers._kit.driver import Sample
from drivers._kit.encode import Encoder
from recorder.contract.errors import ProtocolError
from recorder.contract.wire import Kind, Message
from recorder.live.views import Fingerprint
from tests.live.views.sensors import first, message_of, play


@pytest.mark.parametrize("sensor", ["camera", "lidar", "radar", "imu"])
def test_samples_of_a_sensor_differ_from_each_other(sensor: str) -> None:
    seen = [
        Fingerprint(spec).of(message)
        for spec, _, message in play(sensor, 40 if sensor == "lidar" else 6)
        if spec.name == sensor
    ]
    assert len(seen) > 2 and None not in seen
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("sensor", ["camera", "radar", "imu"])
def test_the_same_sample_under_a_fresh_stamp_is_the_same(sensor: str) -> None:
    spec, data, message = first(sensor)
    later = replace(message, t_mono_ns=message.t_mono_ns + 50_000_000, number=9)
    assert Fingerprint(spec).of(later) == Fingerprint(spec).of(message)
    if sensor == "radar":
        iq = data["iq"].copy()
        iq[0, 5, 1, 2, 7] += 1
        changed = message_of(spec, {"iq": iq, "valid": data["valid"]})
        assert Fingerprint(spec).of(changed) != Fingerprint(spec).of(message)


def test_a_repeated_sweep_is_the_same_however_it_is_packed() -> None:
    """Packing tries from time to time what is worth it, and then gives other bytes."""
    spec, data, _ = first("lidar", beams=64)
    encoder, fingerprint = Encoder(spec), Fingerprint(spec)
    prints, packed = set(), set()
    for number in range(40):
        times = np.array([number], np.int64)
        data["t_col"] = data["t_col"] + 100_000_000
        frames, sizes = encoder.encode(Sample(spec.name, times, data, times))
        message = Message(
            Kind.DATA, spec.name, count=1, t_mono_ns=times, t_dev_ns=times, sizes=sizes,
            frames=frames,
        )  # fmt: skip
        prints.add(fingerprint.of(message))
        packed.add(bytes(frames[0]))
    encoder.close()
    assert len(packed) > 1 and len(prints) == 1
    other = {**data, "rng": np.roll(data["rng"], 1, axis=2)}
    assert fingerprint.of(message_of(spec, other)) not in prints


def test_streams_of_other_packers_have_a_fingerprint_too() -> None:
    spec, _, message = first("lidar")
    at = [channel.name for channel in spec.channels].index("rng")
    fingerprint, seen = Fingerprint(spec), set()
    for value in (0, 0, 1):
        frame = lzma.compress(bytes([value] * 100), check=lzma.CHECK_CRC64)
        frames = list(message.frames)
        frames[at] = frame
        sizes = (np.array([len(frame)], np.uint32), *message.sizes[1:])
        seen.add(fingerprint.of(replace(message, frames=frames, sizes=sizes)))
    assert len(seen) == 2


def test_positions_may_repeat() -> None:
    spec, _, message = first("imu", "imu_gnss")
    assert Fingerprint(spec).of(message) is None


def test_messages_of_another_declaration_are_refused() -> None:
    spec, _, message = first("camera")
    with pytest.raises(ProtocolError, match="camera: data message 0"):
        Fingerprint(spec).of(replace(message, frames=[]))
