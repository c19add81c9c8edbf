"""``recorder view`` as a process of its own, with a real WebSocket client."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from recorder.session.reader import Session
from tests.acceptance.command import DEADLINE_S, RECORDER, here
from tests.formats.vrs.foreign import write_records
from tests.recording.writer.test_commit import Recording
from tests.viewers.live.foxglove.client import Client
from tests.viewers.live.staging import BROWSER, unpack
from tests.viewers.live.test_player_open import grow

CONFIG = """
version: 1
session: {root: sessions}
sensors:
  camera: {driver: camera, source: "sim:", width: 160, height: 120, fps: 30, pace: max}
  imu: {driver: xsens, source: "sim:", rate: 100, pace: max}
storage: {min_free_gb: 0}
"""
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view")
    (folder / "rig.yaml").write_text(CONFIG)
    ran = here("run", folder / "rig.yaml", "--name", "drive", "--duration", 3, labels=True)
    assert ran.code == 0, ran.err
    return folder / "sessions" / "drive"


@contextmanager
def viewing(session: Path, *options: str) -> Iterator[dict[str, Any]]:
    """`recorder view` until the block ends: its result and pid; SIGINT has to end it with 0."""
    with subprocess.Popen(
        [str(RECORDER), "view", str(session), "--format", "json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        guard = threading.Timer(DEADLINE_S, process.kill)
        guard.start()
        try:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or not lines[-1].startswith("}"):
                lines.append(process.stdout.readline())
                assert lines[-1], process.communicate()
            result: dict[str, Any] = {**json.loads("".join(lines)), "pid": process.pid}
            yield result
            process.send_signal(signal.SIGINT)
            _, result["err"] = process.communicate()
        finally:
            guard.cancel()
            process.kill()
    assert process.returncode == 0, result["err"]


class Page:
    """A browser in a few lines."""

    def __init__(self, link: ClientConnection) -> None:
        self.link = link
        self.notes: list[dict[str, Any]] = []
        self.seen: list[str] = []

    def send(self, **message: Any) -> None:
        self.link.send(json.dumps(message))

    def until(self, wanted: Callable[[dict[str, Any], dict[str, Any]], bool]) -> Any:
        """The first message for which `wanted(header, arrays)` holds; samples are acknowledged."""
        while True:
            message = self.link.recv(timeout=DEADLINE_S)
            if isinstance(message, bytes):
                header, arrays = unpack(message)
                if not header["static"]:
                    self.send(op="drawn", id=header["id"], number=header["number"])
                self.seen.append(json.dumps(header))
            else:
                header, arrays = json.loads(message), {}
                self.seen.append(message)
            if wanted(header, arrays):
                return header, arrays

    def note(self, kind: str, **values: Any) -> dict[str, Any]:
        header, _ = self.until(
            lambda note, _: note.get("type") == kind and values.items() <= note.items()
        )
        found: dict[str, Any] = header
        return found

    def sample(self, stream: str, t_ns: int) -> tuple[dict[str, Any], dict[str, Any]]:
        found: tuple[dict[str, Any], dict[str, Any]] = self.until(
            lambda header, _: header.get("stream") == stream and header["t_ns"] == str(t_ns)
        )
        return found


@contextmanager
def page(url: str, **options: Any) -> Iterator[Page]:
    address = url.replace("http", "ws", 1) + "live"
    with connect(address, **{**BROWSER, **options}) as link:
        yield Page(link)


@pytest.fixture(scope="module")
def viewer(recorded: Path) -> Iterator[dict[str, Any]]:
    """The command's result; the tests of this file look at the one player that they share."""
    with viewing(recorded, "--no-browser", "--speed", "16") as result:
        yield result


def test_seek_and_step_show_the_stored_samples(recorded: Path, viewer: dict[str, Any]) -> None:
    with Session(recorded) as session:
        camera = session.streams["camera"]
        stamps, imu_stamps = camera.t_ns.tolist(), session.streams["imu"].t_ns
        jpegs = [camera.channels["video.avi"].encoded(i) for i in range(len(camera))]
        numbers = np.asarray(camera.seq).tolist()

    assert viewer["session"] == "drive" and viewer["url"].startswith("http://127.0.0.1:")
    with page(viewer["url"]) as browser:
        hello = browser.note("hello")
        assert hello["mode"] == "playback"
        jumps = browser.note("playback")["jumps"]
        browser.send(op="watch", id=1, stream="camera", view="picture", max_hz=30)
        for k, index in enumerate((60, 10, 89, 0)):
            browser.send(op="seek", t_ns=str(stamps[index] + 1_000_000), request=k)
            reply = browser.note("reply", request=k)
            assert reply["ok"] and reply["t_ns"] == str(stamps[index] + 1_000_000)
            header, arrays = browser.sample("camera", stamps[index])
            assert header["seq"] == numbers[index]
            assert bytes(arrays["jpeg"]) == jpegs[index]
        for index in (1, 2, 3, 2):
            by = 1 if index != 2 or header["seq"] == 1 else -1
            browser.send(op="step", stream="camera", by=by)
            header, arrays = browser.sample("camera", stamps[index])
            assert bytes(arrays["jpeg"]) == jpegs[index]
        browser.send(op="step", stream="imu", by=1)
        now = browser.note("playback", jumps=jumps + 9)
        assert int(now["t_ns"]) in imu_stamps and now["playing"] is False


def test_what_the_page_is_told_of_the_session(recorded: Path, viewer: dict[str, Any]) -> None:
    with page(viewer["url"]) as browser:
        timeline = browser.note("timeline")
        assert set(timeline["streams"]) == {"camera", "imu"}
        ((start, end, kind, _),) = timeline["streams"]["camera"]
        assert kind == "data" and int(timeline["start_ns"]) <= int(start) < int(end)
        status = browser.note("status")
        assert (status["verdict"]["word"], status["verdict"]["why"]) == ("PASS", "clean")
        assert status["session_verdict"]["verdict"] == "PASS"
        assert status["streams"]["camera"]["samples"] == 90
        assert not any(str(recorded.parent.parent) in text for text in browser.seen)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"op": "speed", "value": 17}, "needs 0.1 to 16"),
        ({"op": "speed", "value": True}, "value is not a number"),
        ({"op": "speed"}, "value is not a number"),
        ({"op": "seek", "t_ns": 5}, "t_ns is not a decimal number"),
        ({"op": "seek", "t_ns": "1e3"}, "t_ns is not a decimal number"),
        ({"op": "seek", "t_ns": "9" * 400}, "t_ns is not a decimal number"),
        ({"op": "step", "stream": "gnss", "by": 1}, "no stream 'gnss'"),
        ({"op": "step", "stream": "imu", "by": 0}, "stream and by"),
        ({"op": "step", "stream": "imu", "by": 1.5}, "stream and by"),
        ({"op": "step", "stream": "imu", "by": True}, "stream and by"),
    ],
)
def test_requests_that_cannot_be(
    viewer: dict[str, Any], message: dict[str, Any], text: str
) -> None:
    with page(viewer["url"]) as browser:
        browser.send(**message, request=1)
        reply = browser.note("reply", request=1)
    assert not reply["ok"] and text in reply["error"]


def test_damage_is_named_and_the_rest_is_played(recorded: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(recorded, tmp_path / "damaged")
    video = damaged / "camera" / "video.avi"
    video.write_bytes(video.read_bytes()[:-100_000])
    with viewing(damaged) as result, page(result["url"]) as browser:
        verdict = browser.note("status")["verdict"]
        assert verdict["word"] == "FAIL" and "unreadable (camera)" in verdict["why"]
    assert "recorder view: camera: video.avi holds" in result["err"]


@pytest.mark.campaign
def test_a_session_that_is_being_recorded_is_viewed_with_the_lowest_priority(
    tmp_path: Path,
) -> None:
    recording = Recording(tmp_path, ["a"])
    grow(recording, "a", messages=10)
    with viewing(recording.path) as result, page(result["url"]) as browser:
        assert browser.note("playback")["recording"] is True
        assert os.getpriority(os.PRIO_PROCESS, result["pid"]) == 19
        before = int(browser.note("timeline")["end_ns"])
        grow(recording, "a", messages=10)
        browser.until(
            lambda note, _: note.get("type") == "timeline" and int(note["end_ns"]) > before
        )
    recording.writer.close("clean")


def test_an_address_that_others_reach_needs_a_token(recorded: Path) -> None:
    ran = here("view", recorded, "--bind", "0.0.0.0")
    assert ran.code == 2
    assert ran.err == [
        "recorder view: --bind: 0.0.0.0 is reached from other machines, which needs --token"
    ]
    ran = here("view", recorded, "--token", "short")
    assert ran.code == 2 and "--token: needs 16 characters" in ran.err[0]
    with viewing(recorded, "--token", TOKEN) as result:
        with pytest.raises(InvalidStatus, match="401"), page(result["url"]):
            pass
        with page(result["url"], additional_headers={"Authorization": f"Bearer {TOKEN}"}) as own:
            assert own.note("hello")["mode"] == "playback"
    assert TOKEN not in result["err"]


def test_what_cannot_be_viewed(recorded: Path, tmp_path: Path) -> None:
    ran = here("view", tmp_path / "nothing")
    assert ran.code == 1 and ran.err == [
        f"recorder view: {tmp_path / 'nothing'}: no such session folder"
    ]
    assert here("view", recorded, "--speed", "0").code == 2
    assert here("view", recorded, "--port", "70000").code == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = here("view", recorded, "--port", taken.getsockname()[1])
    assert ran.code == 2 and "cannot be used" in ran.err[0]


# In Foxglove


def address(url: str) -> str:
    return url.replace("http", "ws", 1) + "foxglove"


async def test_a_desktop_app_connects_where_its_origin_is_permitted(recorded: Path) -> None:
    with viewing(recorded, "--no-browser", "--origin", "file://") as result:
        client = await Client.open(address(result["url"]), origin="file://")
        await client.greeted("/camera/image")
        await client.close()
        with pytest.raises(InvalidStatus) as refused:
            await Client.open(address(result["url"]), origin="app://other")
        assert refused.value.response.status_code == 403


def test_an_archive_is_viewed_as_a_temporary_session(tmp_path: Path) -> None:
    archive = write_records(
        tmp_path / "some.vrs", *((1.0 + at / 100, b"a" * at) for at in range(9))
    )
    with viewing(archive, "--no-browser") as result:
        assert result["session"] == "some"
        with page(result["url"]) as browser:
            note = browser.until(
                lambda note, _: (
                    note.get("type") == "status"
                    and note["streams"].get("vrs_500_1", {}).get("samples") == 9
                )
            )
            assert note[0]["session_verdict"]["state"] in ("recording", "clean")
    told = re.search(f"{re.escape(str(archive))} is imported below (.*) and deleted", result["err"])
    assert told is not None and not Path(told[1]).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["some.vrs"]


def test_an_archive_that_cannot_be_imported_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    archive = tmp_path / "text.vrs"
    archive.write_text("text" * 30)
    ran = here("view", archive)
    assert ran.code == 2 and len(ran.err) == 2
    assert ran.err[1] == f"recorder view: {archive}: is no VRS file"
    assert [path.name for path in tmp_path.iterdir()] == ["text.vrs"]
