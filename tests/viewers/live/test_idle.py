"""What viewers see before anything is recorded."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from drivers.sim.emulated_rig import EmulatedRig
from tests.drivers.camera.http_rig import SMALL, entry
from tests.recording.daemon.served import Served
from tests.viewers.live.test_live_process import Live

CONFIG = """
version: 1
session: {{root: sessions}}
sensors: {{camera: {{driver: camera, source: "{source}"}}}}
storage: {{min_free_gb: 0}}
"""


@pytest.mark.campaign(weight=4)
async def test_an_idle_daemon_shows_pictures_and_rates_of_a_device(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(EmulatedRig([entry(**SMALL)], {}))
        served = Served(tmp_path, CONFIG.format(source=rig.sources["camera"].source))
        stack.callback(served.close)
        served.start()
        live = Live(served.socket, served.root)
        live.start()
        stack.callback(live.end)
        async with live.viewer() as viewer:
            await viewer.watch(1, "camera", "picture")
            pictures: set[bytes] = set()
            while len(pictures) < 3:
                header, arrays = await viewer.sample()
                pictures.add(arrays["jpeg"].tobytes())
                await viewer.drawn(header)
            seen = await viewer.note("status", lambda note: note["streams"]["camera"]["rate_hz"])
            assert seen["status"]["state"] == "idle" and seen["session"] is None
            assert seen["streams"]["camera"]["mb_s"] > 0
        assert not list(served.root.glob("*/camera"))
