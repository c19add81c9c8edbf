"""xwr's own capture system on the emulated radar: it speaks what xwr expects of a real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.drivers.mmwave.rig import QUICK_SHAPE, Rig, iq, recording
from tests.support.devices import samples

xwr = pytest.importorskip("xwr", reason="needs xwr, which is not installed")
pytestmark = pytest.mark.conformance


def test_xwr_captures_from_the_emulated_radar(tmp_path: Path) -> None:
    path, truth = recording(tmp_path, 60)
    with Rig("file", path) as rig:
        # Power on as a user would: xwr writes at once after the reset, without a look at the boot.
        capture = {**rig.source.options["capture"], "timeout": 1.0, "socket_buffer": 1 << 20}
        system = xwr.XWRSystem(radar=dict(rig.source.options["radar"]), capture=capture)
        frames = []
        for frame in system.stream():
            frames.append(frame)
            if len(frames) == 20:
                break
        system.stop()
        system.dca.config_socket.close()
        system.dca.data_socket.close()
        system.xwr.port.close()
    assert all(frame.complete for frame in frames)
    for frame, true in zip(frames, truth, strict=False):
        got = np.frombuffer(frame.data, "<i2").reshape(QUICK_SHAPE)
        np.testing.assert_array_equal(got, true)


def test_both_assemble_the_same_from_the_same_packets(tmp_path: Path) -> None:
    """Ours, of a capture with lost packets, is what xwr makes of it: zeros, and not whole."""
    path, _ = recording(tmp_path, 60)
    faults = ("loss=5x@0.05", "loss=1x@0.12")
    runs = []
    with Rig("file", path, faults) as rig:
        rig.driver.open()
        runs.append([(iq(s), bool(np.asarray(s.data["valid"])[0]))
                     for s in samples(rig.frames(20))])  # fmt: skip
    with Rig("file", path, faults) as rig:
        capture = {**rig.source.options["capture"], "timeout": 1.0, "socket_buffer": 1 << 20}
        system = xwr.XWRSystem(radar=dict(rig.source.options["radar"]), capture=capture)
        theirs = []
        for frame in system.stream():
            theirs.append((np.frombuffer(frame.data, "<i2").reshape(QUICK_SHAPE), frame.complete))
            if len(theirs) == 20:
                break
        system.stop()
        for one in (system.dca.config_socket, system.dca.data_socket, system.xwr.port):
            one.close()
        runs.append(theirs)
    ours, other = runs
    assert [whole for _, whole in ours] == [whole for _, whole in other]
    assert sum(not whole for _, whole in ours) in (2, 3, 4)
    for (mine, _), (yours, _) in zip(ours, other, strict=True):
        np.testing.assert_array_equal(mine, yours)
