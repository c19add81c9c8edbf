"""The option ``packing`` of the driver `ouster`: what is stored, and what ``auto`` chooses."""

from __future__ import annotations

import os

import numpy as np
import pytest

from drivers.kit.driver import Sample
from drivers.kit.encode import Encoder
from drivers.ouster import packing
from drivers.ouster.frames import channel_specs
from drivers.ouster.packing import choose_packing
from recorder.codecs import STORED
from recorder.codecs.streams import StreamSpec
from recorder.codecs.xz import stored_bytes

FIELDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "RANGE": ("u4", ()),
    "RANGE2": ("u4", ()),
    "REFLECTIVITY": ("u1", ()),
    "NEAR_IR": ("u2", ()),
}
SPECS = channel_specs(FIELDS, 32, 512, "lzmaf")
WIDE = ["rng", "rng2", "rfl", "nir"]


def test_later_stores_all_but_what_is_nearly_zero() -> None:
    chosen = choose_packing("later", SPECS, 10.0)
    assert sorted(chosen.settings[STORED]) == sorted(WIDE)
    stream = StreamSpec("lidar", SPECS, rate_hz=10.0, settings=chosen.settings)
    noise = np.random.default_rng(1)
    data = {
        c.name: np.zeros((1, *c.shape), c.np_dtype)
        if "far" in c.name
        else noise.integers(0, 200, (1, *c.shape)).astype(c.np_dtype)
        for c in SPECS
    }
    encoder = Encoder(stream)
    frames, _ = encoder.encode(Sample("lidar", np.array([0]), data))
    encoder.close()
    sizes = {c.name: memoryview(f).nbytes for c, f in zip(SPECS, frames, strict=True)}
    for channel in SPECS:
        if channel.name in WIDE:
            assert sizes[channel.name] == stored_bytes(channel.sample_bytes)
        elif "far" in channel.name:
            assert sizes[channel.name] < 200
    assert chosen.bytes_per_sample is not None
    assert 0 <= chosen.bytes_per_sample - sum(sizes.values()) < 4000


def test_the_choice_says_what_it_costs() -> None:
    sweeps = channel_specs({k: v for k, v in FIELDS.items() if k != "RANGE2"}, 128, 1024, "lzmaf")
    text = choose_packing("later", sweeps, 10.0).settings["packing"]
    assert text == (
        "rows are stored while recording, 6.7 MB/s or 24 GB/h, and packed after the session"
    )


@pytest.mark.parametrize(("busy", "later"), [(0.0, False), (63.9, True), (500.0, True)])
def test_auto_takes_what_the_machine_has_room_for(
    monkeypatch: pytest.MonkeyPatch, busy: float, later: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(os, "getloadavg", lambda: (busy, 0.0, 0.0))
    monkeypatch.setattr(packing, "_load", lambda *_: 0.3)
    chosen = choose_packing("auto", SPECS, 10.0)
    assert (STORED in chosen.settings) == later
    assert str(chosen.settings["packing"]).startswith("auto: packing needs 0.30 of a core, ")


def test_the_load_grows_with_rate_and_rows() -> None:
    assert packing._load(SPECS, 20.0) > 0
    assert packing._load(channel_specs(FIELDS, 128, 2048, "lzmaf"), 20.0) > packing._load(
        channel_specs(FIELDS, 32, 512, "lzmaf"), 1.0
    )


@pytest.mark.parametrize("option", [0.0, 0.42, 1.0])
def test_a_number_packs_while_recording(option: float) -> None:
    chosen = choose_packing(option, SPECS, 10.0)
    assert chosen.settings == {"xz_worth": option} and chosen.bytes_per_sample is None


def test_other_compression_has_nothing_to_pack() -> None:
    for option in ("later", "auto"):
        assert choose_packing(option, channel_specs(FIELDS, 32, 512, "raw"), 10.0).settings == {}
