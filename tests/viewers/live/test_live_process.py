"""The live process as the daemon starts it, beside a real daemon: the protocol from end to end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from recorder.session.reader import Session
from recorder.viewers.live.server import listen
from tests.recording.daemon.served import Served
from tests.viewers.live.staging import BROWSER, Viewer

CONFIG = """
version: 1
session: {root: sessions}
sensors:
  camera: {driver: camera, source: "sim:", width: 320, height: 240, fps: 15, required: false}
  imu: {driver: xsens, source: "sim:", rate: 100}
storage: {min_free_gb: 0}
"""
PATIENCE_S = 180.0  # the live process gives way to everything


class Live:
    """A live process; `start` it as often as it was ended."""

    def __init__(self, socket: Path, root: Path, **live: Any) -> None:
        section = {"port": 0, "bind": "127.0.0.1", "token": None, "origins": [], "clients": 4}
        section |= {"certificate": None, "key": None, **live}
        self.given: dict[str, Any] = {"socket": str(socket), "root": str(root), "calibration": None}
        self.given["live"] = section
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recorder.viewers.live"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(self.given) + "\n")
        self.process.stdin.close()
        line = self.process.stdout.readline()
        self.url = json.loads(line)["url"] if line else ""

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code, and its diagnostics."""
        assert self.process is not None and self.process.stderr is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        text = self.process.stderr.read()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process = None
        return code, text

    @contextlib.asynccontextmanager
    async def viewer(self, **options: Any) -> AsyncIterator[Viewer]:
        url = self.url.replace("http", "ws", 1) + "live"
        async with connect(url, **{**BROWSER, **options}) as socket:
            yield Viewer(socket)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path, CONFIG)
    found.start()
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def live(served: Served) -> Iterator[Live]:
    found = Live(served.socket, served.root)
    found.start()
    try:
        yield found
    finally:
        if found.process is not None:
            found.end(signal.SIGKILL)


async def sampled(viewer: Viewer) -> dict[str, Any]:
    """The header of the next drawing that is not static."""
    while True:
        header, _ = await viewer.sample()
        if not header["static"]:
            return header


async def test_a_session_is_started_watched_marked_and_stopped_from_a_browser(
    served: Served, live: Live
) -> None:
    shown: dict[str, tuple[int, int]] = {}
    async with live.viewer() as viewer:
        assert (await viewer.note("hello"))["mode"] == "live"
        status = await viewer.note("status", lambda note: note["status"])
        assert status["status"]["state"] == "idle"
        assert set(status["streams"]) == {"camera", "imu"}
        text = json.dumps(status)
        assert str(served.folder) not in text and "/" + served.folder.name not in text

        await viewer.say(op="start", request=1, name="tour")
        reply = await viewer.note("reply")
        assert reply["ok"] and reply["session"] == "tour"
        await viewer.note("streams", lambda note: len(note["streams"]) == 2)
        await viewer.watch(1, "camera", "picture")
        await viewer.watch(2, "imu", "series")
        while len(shown) < 2 or min(count for count, _ in shown.values()) < 5:
            header, arrays = await viewer.sample()
            if not header["static"]:
                count, _ = shown.get(header["stream"], (0, 0))
                shown[header["stream"]] = count + 1, int(header["t_ns"])
                assert len(arrays)
                await viewer.drawn(header)
        before_ns = time.time_ns()
        await viewer.say(op="mark", request=2, text="pothole", age_ms=1000)
        assert (await viewer.note("reply"))["ok"]
        after_ns = time.time_ns()
        event = await viewer.note("event", lambda note: note["kind"] == "mark")
        assert event["text"] == "pothole"
        at_ns = int(event["t_ns"])  # of the keypress
        # The session's clock is the monotonic one, which the calendar clock may drift from.
        assert before_ns - 10**8 <= at_ns + 10**9 <= after_ns + 10**8
        await viewer.note("timeline", lambda note: note["marks"])
        recording = await viewer.note(
            "status", lambda note: note["session"] and note["streams"]["imu"]["rate_hz"]
        )
        assert recording["streams"]["imu"]["samples"] > 0

        await viewer.say(op="start", request=3)
        reply = await viewer.note("reply")
        assert not reply["ok"] and str(served.folder) not in reply["error"]
        await viewer.say(op="stop", request=4)
        assert (await viewer.note("reply"))["ok"]
        sessions = await viewer.note(
            "sessions", lambda note: any(s["state"] == "clean" for s in note["sessions"])
        )
        assert [s["name"] for s in sessions["sessions"]] == ["tour"]
    with Session(served.root / "tour") as session:
        for stream, (_, t_ns) in shown.items():
            stamps = session.streams[stream].times().tolist()
            assert t_ns in stamps  # the shown stamps are the recorded ones
        marks = [event for event in session.events() if event["type"] == "mark"]
        assert [mark["text"] for mark in marks] == ["pothole"]
    assert live.end() == (0, "")


@pytest.mark.campaign(weight=8)
async def test_a_driver_that_is_killed_changes_its_row(served: Served, live: Live) -> None:
    async with live.viewer() as viewer:
        await viewer.say(op="start", request=1)
        await viewer.note("reply")
        await viewer.watch(1, "imu", "series")
        header = await sampled(viewer)
        status = await viewer.note("status", lambda note: note["streams"]["imu"]["samples"])
        os.kill(status["status"]["sensors"]["imu"]["pid"], signal.SIGKILL)
        await viewer.note("status", lambda note: note["streams"]["imu"]["unknown_losses"])
        await viewer.drawn(header)
        number = header["number"]
        while header["number"] < number + 3:  # the driver is back, and is shown again
            header, _ = await viewer.sample()
            await viewer.drawn(header)
        # The open session is judged as `recorder info` judges it, once the event is written.
        note = await viewer.note(
            "status", lambda note: (note["session_verdict"] or {}).get("verdict") == "FAIL"
        )
        judged = note["session_verdict"]
        assert judged["state"] == "recording"
        assert {reason["where"] for reason in judged["reasons"]} == {"imu"}


@pytest.mark.campaign(weight=6)
async def test_a_daemon_that_is_not_there_is_told_and_found_when_it_comes(
    served: Served, live: Live
) -> None:
    async with live.viewer() as viewer:
        await viewer.note("status", lambda note: note["status"])
        await asyncio.to_thread(served.kill)
        offline = await viewer.note("status", lambda note: not note["status"])
        assert offline["verdict"]["word"] == "OFFLINE"
        assert str(served.folder) not in json.dumps(offline)
        await viewer.say(op="start", request=1)
        assert not (await viewer.note("reply"))["ok"]
        await asyncio.to_thread(served.start)
        await viewer.note("status", lambda note: note["status"])
        await viewer.say(op="start", request=2)
        assert (await viewer.note("reply"))["ok"]
        await viewer.watch(1, "imu", "series")
        await sampled(viewer)


@pytest.mark.campaign(weight=5)
async def test_a_live_process_that_is_killed_leaves_the_recording_and_can_be_started_again(
    served: Served, live: Live
) -> None:
    async def look() -> None:
        async with live.viewer() as viewer:
            await viewer.note("status", lambda note: note["session"] == "tour")

    served.request("start", name="tour")
    await look()
    live.end(signal.SIGKILL)
    live.start()
    await look()
    served.request("stop")
    with Session(served.root / "tour") as session:
        assert not [event for event in session.events() if event["type"] == "lost"]


def test_it_ends_with_one_line_and_2_if_it_cannot_listen(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        live = Live(tmp_path / "none.sock", tmp_path, port=port)
        live.start()
        code, text = live.end()
        assert code == 2 and text.count("\n") == 1
        assert text.startswith(f"live.port: 127.0.0.1 port {port}")
    live = Live(tmp_path / "none.sock", tmp_path, bind="0.0.0.0")
    live.start()
    code, text = live.end()
    assert code == 2 and "live.token" in text and text.count("\n") == 1


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.campaign)]
)
async def test_it_ends_in_order_with_a_browser_connected(tmp_path: Path, number: int) -> None:
    live = Live(tmp_path / "none.sock", tmp_path)
    live.start()
    async with live.viewer() as viewer:
        await viewer.note("status")
        assert await asyncio.to_thread(live.end, number) == (0, "")


async def test_with_a_certificate_and_a_token_everything_is_encrypted(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    certificate, key = tmp_path / "live.pem", tmp_path / "live.key"
    made = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-days", "2", "-subj", "/CN=rig", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    token = "a-token-of-sixteen-letters"
    settings = {"certificate": str(certificate), "key": str(key), "token": token}
    live = Live(tmp_path / "none.sock", tmp_path, bind="0.0.0.0", **settings)
    live.start()
    assert live.url.startswith("https://127.0.0.1:")
    trusted = ssl.create_default_context(cafile=str(certificate))
    allowed = {"Authorization": f"Bearer {token}"}
    async with live.viewer(ssl=trusted, additional_headers=allowed) as viewer:
        assert (await viewer.note("status"))["verdict"]["word"] == "OFFLINE"
    with pytest.raises(InvalidStatus):
        async with live.viewer(ssl=trusted):
            pass
    assert live.end() == (0, "")  # no line with the token, either
