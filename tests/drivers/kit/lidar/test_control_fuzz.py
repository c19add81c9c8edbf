"""Answers of lidars' controls that no lidar gives: each is an error, or values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.hesai import ptc_messages as ptc
from drivers.kit.driver import SensorConfig
from drivers.kit.http_request import HttpAnswer, HttpRequest
from drivers.velodyne.control import VelodyneControl
from drivers.velodyne.driver import VelodyneDriver
from recorder.common.errors import DeviceError
from recorder.config.options import check_options

PARSERS = [
    ptc.parse_inventory,
    ptc.parse_config,
    ptc.parse_ptp,
    ptc.parse_status,
    ptc.parse_ptp_state,
]


@given(data=st.binary(max_size=220), number=st.integers(0, len(PARSERS) - 1))
def test_answers_of_ptc(data: bytes, number: int) -> None:
    try:
        found = PARSERS[number](data)
    except DeviceError as error:
        assert "bytes only" in str(error)
    else:
        json.dumps(found)  # as a State's values


WORDS = ["On", "Off", "Dual", "Absent", 600, -1, 2**70, 1.5, None, True, [], {}, "x" * 200]
KEYS = [
    *("rpm", "returns", "laser", "host", "addr", "dport", "phaselock", "enabled", "offset"),
    *("gps", "pps_state", "motor", "state", "volt_temp", "top", "lm20_temp", "model"),
]
VALUES = st.recursive(
    st.sampled_from(WORDS),
    lambda inner: st.dictionaries(
        st.sampled_from(KEYS),
        inner,
    ),
    max_leaves=8,
)


@given(value=VALUES, text=st.none() | st.text(max_size=30))
def test_answers_of_a_velodyne(value: Any, text: str | None) -> None:
    answer = text if text is not None else json.dumps(value)
    control = VelodyneControl(
        SensorConfig("lidar", "velodyne", "//127.0.0.1", check_options(VelodyneDriver.options, {}))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpRequest, "send", lambda *_: HttpAnswer(200, answer, "127.0.0.1"))
        for ask in (control.bring_up, control.poll):
            try:
                json.dumps(_values(ask()))
            except DeviceError as error:
                assert str(error).startswith("HTTP")


def _values(found: Any) -> Any:
    return found if isinstance(found, dict) else [found.port, dict(found.settings)]
