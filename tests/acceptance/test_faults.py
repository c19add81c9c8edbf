"""What goes wrong, or is asked for, in the middle of a session."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.command import (
    assert_nothing_lost,
    assert_sound,
    column,
    interrupted,
    recorder,
    write_config,
)
from tests.support.events import events

SHIFTY = '''
"""A sensor whose picture grows after 30 samples."""

import numpy as np

from drivers.kit.driver import Driver, Sample
from drivers.kit.runner import main
from recorder.codecs.streams import ChannelSpec, StreamSpec
from tests.support.events import events


class ShiftyDriver(Driver):
    """Gives counters of shape [4], then of shape [5]."""

    schemes = {"sim": "a counter"}

    def open(self):
        self._k = 0
        channel = ChannelSpec("value", "raw", "u4", (4,), "a counter", "1")
        return [StreamSpec(self.sensor.name, (channel,), rate_hz=100.0)]

    def read(self):
        k = self._k
        self._k += 1
        width = 4 if k < 30 else 5
        values = np.full((1, width), k, np.uint32)
        return Sample(self.sensor.name, np.array([k * 10_000_000]), {"value": values})

    def close(self):
        pass


if __name__ == "__main__":
    main(ShiftyDriver)
'''


def test_samples_of_another_shape_are_counted_and_disturb_no_other_stream(tmp_path: Path) -> None:
    package = tmp_path / "unsteady"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "shifty.py").write_text(SHIFTY)
    config = write_config(
        tmp_path / "c.yaml",
        """
        shifty: {driver: unsteady.shifty, source: "sim:"}
        imu: {driver: xsens, source: "sim:", rate: 100}
        """,
    )
    ran = recorder(
        *("run", config, "--root", tmp_path / "root", "--name", "s"),
        *("--duration", 1, "--format", "json"),
        env={"PYTHONPATH": str(tmp_path)},
    )
    fault = "shifty/value: 1 x u4 [5] came where 1 x u4 [4] was declared"
    assert (ran.code, ran.result["faults"]) == (3, [fault])
    told = [line for line in ran.complaints if line != fault]
    assert len(told) < len(ran.complaints) and all("shifty: lost" in line for line in told)
    session = tmp_path / "root/s"
    streams = ran.result["streams"]
    assert (streams["shifty"]["samples"], streams["shifty"]["ended"]) == (30, "changed")
    assert (streams["imu"]["samples"], streams["imu"]["ended"]) == (100, "duration")
    values = column(session, "shifty", "value")
    np.testing.assert_array_equal(values, np.repeat(np.arange(30), 4).reshape(30, 4))
    assert_sound(session)
    reported = [e for e in events(session, stream="shifty") if e["type"] != "rate"]
    assert {e["type"] for e in reported} == {"fault", "lost"} and fault in json.dumps(reported)
    assert streams["shifty"]["lost"] == {"changed": 70}


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [
        (signal.SIGINT, True),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.campaign),
        (signal.SIGTERM, False),
    ],
    ids=["ctrl-c", "sigint", "sigterm"],
)
def test_a_signal_ends_a_session_cleanly(
    tmp_path: Path, number: signal.Signals, whole_group: bool
) -> None:
    config = write_config(
        tmp_path / "c.yaml",
        """
        radar: {driver: mmwave, source: "sim:"}
        imu: {driver: xsens, source: "sim:", rate: 100}
        """,
    )

    def running(session: Path) -> bool:
        files = [session / "imu/acc", session / "radar/iq"]
        return all(file.exists() and file.stat().st_size for file in files)

    ran = interrupted(
        *(config, "--root", tmp_path / "root", "--name", "s", "--format", "json"),
        when=running,
        number=number,
        whole_group=whole_group,
    )
    assert (ran.code, ran.complaints) == (0, [])
    streams = ran.result["streams"]
    assert {s["ended"] for s in streams.values()} == {"stopped"}
    assert all(s["samples"] >= 2 for s in streams.values())
    assert_nothing_lost(tmp_path / "root/s")
    assert_sound(tmp_path / "root/s")
