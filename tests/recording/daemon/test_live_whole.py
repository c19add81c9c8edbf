"""The live process beside real recordings: it serves, dies, and takes nothing with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from recorder.bus.control.client import Client
from recorder.session.incidents import incidents
from recorder.session.reader import Session
from tests.recording.daemon.served import Served
from tests.support.waiting import PATIENCE_S, wait_until

CONFIG = """
version: 1
session: {root: sessions, name: drive}
storage: {min_free_gb: 0}
sensors:
  imu: {driver: xsens, source: "sim:", rate: 100}
live: {port: 0}
"""


@pytest.mark.campaign(weight=6)
def test_a_daemon_serves_viewers_and_records_on_when_that_ends(served: Served) -> None:
    served.start()
    served.request("start")
    first: Any = wait_until("the live process serves", lambda: shown(served.status()))
    assert served.log.count(first["url"]) == 1
    process = psutil.Process(first["pid"])
    assert process.nice() == 19 and process.ionice().ioclass == psutil.IOPRIO_CLASS_IDLE
    os.kill(first["pid"], signal.SIGKILL)
    second: Any = wait_until(
        "another", lambda: (live := shown(served.status())) and live["restarts"] == 1 and live
    )
    assert second["pid"] != first["pid"] and second["fault"] is None
    status = served.status()
    assert status["healthy"] and status["state"] == "recording", status["faults"]
    assert "live: ended with code -9; starting it again" in served.log
    closed = served.request("stop")["closed"]
    assert closed["whole"] and closed["streams"]["imu"]["lost"] == {}
    served.kill()  # and every process is gone with it
    assert not psutil.pid_exists(second["pid"])


@pytest.mark.campaign(weight=5)
def test_a_run_is_marked_and_stopped_by_its_viewers(tmp_path: Path) -> None:
    config = tmp_path / "rig.yaml"
    config.write_text(CONFIG)
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        run = subprocess.Popen(
            [sys.executable, "-m", "recorder", "run", str(config), "--live"],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        wait_until("it records", lambda: "live views: " in log.read_text())
        folder = Path(log.read_text().partition("live views: ")[2].split()[0]).parent
        with Client(folder / "control.sock") as client:
            live = wait_until("it is served", lambda: shown(client.status().status))
            assert f"live: {live['url']}" in log.read_text()
            client.mark("pothole")
            reply = client.stop()
        assert run.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    assert reply.session == str(tmp_path / "sessions/drive") and reply.state == "idle"
    with Session(Path(reply.session)) as session:
        happened = incidents(session)
    assert happened["ended"] == {"cause": "stop", "detail": None}
    assert [mark["text"] for mark in happened["marks"]] == ["pothole"]
    assert not folder.exists() and not psutil.pid_exists(live["pid"])


def shown(status: Any) -> Any:
    """The live part of a status, once its page is served."""
    live = status["live"]
    if live["url"] is None:
        return None
    try:
        with urllib.request.urlopen(live["url"]) as page:
            return live if page.status == 200 else None
    except OSError:  # it has been killed, and the daemon has not noticed yet
        return None
