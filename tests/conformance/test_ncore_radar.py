"""The spectra that detections are made of, beside those of xwr's own processing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.model import SimulatedRadar
from recorder.perception.radar.radar import RadarGeometry, RadarProcessor

rsp: Any = pytest.importorskip("xwr.rsp.numpy", reason="needs xwr, which is not installed")
generic: Any = pytest.importorskip("xwr.rsp.generic")

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("order", ["qqii", "iiqq"])
@pytest.mark.parametrize("device", ["AWR1843", "AWR1642"])
def test_range_and_doppler_are_xwrs(device: str, order: str) -> None:
    chirp = replace(SIM_CHIRP, device=device)
    processor = RadarProcessor(
        RadarGeometry.of_metadata(json.dumps(chirp.intrinsics(order)), "radar.json")
    )
    theirs = getattr(rsp, f"{device}Boost")(window=True)
    simulated = SimulatedRadar(chirp, order, seed=3)
    frames = [simulated.frame(k) for k in (0, 5, 9)]
    for frame in frames:
        ours = np.abs(processor.cube(frame))
        samples = generic.iq_from_iiqq(frame[None], sample_swap=order == "iiqq")
        expected = np.abs(theirs.doppler_range(samples)[0])
        expected = np.fft.ifftshift(expected, axes=0) / (ours.shape[0] * ours.shape[-1])
        assert expected.shape == ours.shape
        assert np.abs(ours - expected).max() < 1e-4 * expected.max()
