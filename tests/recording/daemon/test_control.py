"""The control socket against clients that are slow, many, rude, or somebody else."""

from __future__ import annotations

import json
import os
import queue
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recorder.bus.control import server as control
from recorder.bus.control.client import Client, DaemonError
from recorder.bus.control.keys import CurveClient, make_keys
from recorder.bus.control.requests import MOST_BYTES
from recorder.bus.control.server import Call, ControlServer, may_control
from recorder.common.errors import StorageError, UsageError
from recorder.recording.daemon.remote_control import RemoteControl

PATIENCE_S = 60.0


class Desk:
    """Answers every call at once, but for marks: these wait until `release`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.held: queue.SimpleQueue[Call] = queue.SimpleQueue()

    def take(self, call: Call) -> None:
        self.calls.append(call)
        if call.request.op == "mark":
            self.held.put(call)
        else:
            call.answer({"ok": True, "state": "idle", "status": {}, "padding": "x" * 100})


@contextmanager
def serving(path: Path, **more: Any) -> Iterator[tuple[ControlServer, Desk]]:
    desk = Desk()
    server = ControlServer(path, desk.take, lambda: "idle", **more)
    server.start()
    try:
        yield server, desk
    finally:
        server.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, Desk]]:
    with serving(tmp_path / "c.sock") as (server, desk):
        yield server.path, desk


def connect(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(str(path))  # blocking: a full queue of connections is waited for
    made.settimeout(PATIENCE_S)
    return made


def replies(made: socket.socket) -> list[dict[str, Any]]:
    """All that comes until the server closes."""
    with made.makefile("rb") as file:
        return [json.loads(line) for line in file]


def test_only_its_users_may_open_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "a/b/c.sock"
    with serving(path):
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o660
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
        assert [p.name for p in path.parent.iterdir()] == ["c.sock"]
    assert not path.exists()


def test_who_may_control_it() -> None:
    own = os.geteuid()
    assert may_control(own, 12345, None) and may_control(0, 0, None)
    other = own + 4321
    assert not may_control(other, other, None)
    assert not may_control(other, other, 77)
    assert may_control(other, 77, 77)


def test_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "may_control", lambda uid, gid, group: False)
    with serving(tmp_path / "c.sock") as (server, desk):
        with connect(server.path) as made:
            (reply,) = replies(made)
        assert reply["ok"] is False and "may not control" in reply["error"]
        assert desk.calls == []


AS_NOBODY = """
import os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
except PermissionError:
    sys.exit("no permission")
try:
    s.sendall(b'{"op":"stop"}\\n')
except BrokenPipeError:
    pass
sys.exit(s.recv(1000).decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_the_kernel_says_who_connects() -> None:
    with tempfile.TemporaryDirectory(prefix="recorder-test-") as folder:
        Path(folder).chmod(0o755)
        with serving(Path(folder) / "c.sock", group="no such group") as (server, desk):
            command = [sys.executable, "-S", "-c", AS_NOBODY, str(server.path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.stderr.strip() == "no permission"
            server.path.chmod(0o666)  # as if a careless hand had opened it
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert "user 65534 may not control this daemon" in done.stderr
            assert desk.calls == []


def test_a_second_daemon_is_refused_and_a_dead_ones_socket_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with serving(path), pytest.raises(UsageError, match="another daemon listens"):
        ControlServer(path, lambda call: None, lambda: "idle")
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.close()
    with serving(path), Client(path) as client:
        assert client.status().ok


def test_a_socket_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="too long for a socket"):
        ControlServer(tmp_path / ("x" * 200), lambda call: None, lambda: "idle")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="no socket can be made there"):
        ControlServer(tmp_path / "file/c.sock", lambda call: None, lambda: "idle")


def test_several_requests_on_one_connection_keep_their_order(served: tuple[Path, Desk]) -> None:
    path, desk = served
    with connect(path) as made:
        made.sendall(b'{"op":"status"}\n{"op":"start","name":"a"}\n{"op":"stop"}\n')
        made.shutdown(socket.SHUT_WR)
        assert [reply["ok"] for reply in replies(made)] == [True] * 3
    assert [call.request.op for call in desk.calls] == ["status", "start", "stop"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\n", "not a JSON object"),
        (b'{"op":"format"}\n', "no op 'format'"),
        (b"x" * (MOST_BYTES + 100), "longer than"),
    ],
)
def test_what_is_malformed_or_too_long_is_refused_and_closed(
    served: tuple[Path, Desk], data: bytes, why: str
) -> None:
    path, desk = served
    with connect(path) as made:
        made.sendall(data)
        (reply,) = replies(made)
    assert (reply["ok"], reply["exit_code"], reply["state"]) == (False, 2, "idle")
    assert why in reply["error"]
    assert desk.calls == []
    with Client(path) as client:
        assert client.status().ok


def test_a_client_that_waits_holds_up_nobody(served: tuple[Path, Desk]) -> None:
    path, desk = served
    with connect(path) as slow, connect(path) as half, Client(path) as other:
        slow.sendall(b'{"op":"mark","text":"a"}\n')
        half.sendall(b'{"op":"sta')
        for _ in range(5):
            assert other.status().ok
        held = desk.held.get(timeout=PATIENCE_S)
        held.answer({"ok": True, "state": "recording"})
        held.answer({"ok": False})  # only the first one counts
        with slow.makefile("rb") as file:
            assert json.loads(file.readline()) == {"ok": True, "state": "recording"}


def test_clients_that_go_away_do_no_harm(served: tuple[Path, Desk]) -> None:
    path, desk = served
    for data in (b"", b'{"op"', b'{"op":"mark","text":"a"}\n', b'{"op":"status"}\n'):
        with connect(path) as made:
            made.sendall(data)
    desk.held.get(timeout=PATIENCE_S).answer({"ok": True, "state": "x" * 1_000_000})
    with Client(path) as client:
        assert client.status().ok


class Turns:
    """A server that is turned by hand, on a clock that is made up."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        monkeypatch.setattr(control, "MOST_CONNECTIONS", most)
        self.now_s = 0.0
        self.desk = Desk()
        self.server = ControlServer(path, self.desk.take, lambda: "idle", clock_s=self._clock)
        self.made: list[socket.socket] = []

    def _clock(self) -> float:
        return self.now_s

    def turn(self) -> None:
        for _ in range(3):
            self.server.turn(0.0)

    def connect(self, request: bytes = b"") -> socket.socket:
        """A client that connects, and asks, a second after the one before."""
        self.now_s += 1.0
        self.made.append(connect(self.server.path))
        self.turn()
        if request:
            self.made[-1].sendall(request)
            self.turn()
        return self.made[-1]

    def close(self) -> None:
        for made in self.made:
            made.close()
        self.server.close()


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    made = Turns(tmp_path / "c.sock", monkeypatch, most=4)
    yield made
    made.close()


WAITS = b'{"op":"mark","text":"a"}\n'


def test_room_is_made_by_who_has_done_nothing_for_the_longest(turns: Turns) -> None:
    """And for no more than the next; who waits for an answer keeps waiting."""
    waiting = turns.connect(WAITS)
    first, second, third = turns.connect(), turns.connect(), turns.connect()
    assert not any(map(is_closed, (waiting, first, second, third)))
    turns.now_s += 1.0
    first.sendall(b'{"op":"sta')  # it has done something since
    turns.turn()
    turns.connect()
    assert [is_closed(made) for made in (waiting, first, second, third)] == [
        False, False, True, False,
    ]  # fmt: skip
    turns.connect()
    assert [is_closed(made) for made in (waiting, first, third)] == [False, False, True]
    for call in turns.desk.calls:
        call.answer({"ok": True, "state": "idle"})
    turns.turn()
    assert json.loads(waiting.recv(1000))["ok"] is True


def test_of_those_who_wait_the_oldest_makes_room(turns: Turns) -> None:
    waiting = [turns.connect(WAITS) for _ in range(4)]
    assert not any(map(is_closed, waiting))
    turns.connect()
    assert [is_closed(made) for made in waiting] == [True, False, False, False]
    last = turns.connect(WAITS)  # the one that did nothing goes before all who wait
    assert [is_closed(made) for made in waiting[1:]] == [False] * 3
    assert not is_closed(last) and is_closed(turns.made[4])


def test_a_client_that_reads_slowly_gets_all_of_a_long_reply(turns: Turns) -> None:
    """And of the reply to its next request."""
    made = turns.connect()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for number in (1, 2):
        made.sendall(WAITS)
        turns.turn()
        turns.desk.calls[-1].answer({"ok": True, "state": "x" * 1_000_000, "number": number})
        turns.turn()
        reply = b""
        while not reply.endswith(b"\n"):
            reply += made.recv(100_000)
            turns.now_s += 0.5  # as long as it goes on, it may take its time
            turns.turn()
        assert json.loads(reply)["number"] == number
    assert len(reply) > 1_000_000


def is_closed(made: socket.socket) -> bool:
    made.setblocking(False)
    try:
        return made.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_who_is_too_slow_is_dropped_in_time(turns: Turns) -> None:
    half, idle, waiting, deaf = (turns.connect() for _ in range(4))
    half.sendall(b'{"op":')
    waiting.sendall(WAITS)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(b'{"op":"mark","text":"b"}\n')
    turns.turn()
    for call in turns.desk.calls:
        if call.request.values["text"] == "b":
            call.answer({"ok": True, "state": "x" * 5_000_000})
    turns.turn()
    began_s = turns.now_s
    for after_s, left in ((6.0, 4), (11.0, 2), (121.0, 1), (10_000.0, 1)):
        turns.now_s = began_s + after_s
        turns.turn()
        assert len(turns.server._connections) == left, after_s
    assert is_closed(half) and is_closed(idle) and not is_closed(waiting)


def test_requests_from_many_threads_all_get_their_own_answer(served: tuple[Path, Desk]) -> None:
    path, desk = served
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with Client(path) as client:
                for _ in range(10):
                    assert client.status().state == "idle"
        except BaseException as error:  # noqa: BLE001  told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert failures == [] and len(desk.calls) == 80


def test_the_client_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match="no daemon runs here"):
        Client(tmp_path / "none.sock")
    path = tmp_path / "c.sock"
    with serving(path) as (server, _), Client(path) as client:
        with pytest.raises(DaemonError, match="is a path") as caught:
            client.start("../a")
        assert caught.value.exit_code == 2 and caught.value.reply is not None
        server.close()
        with pytest.raises(DaemonError, match="closed the connection"):
            client.status()
        server.close = lambda: None  # type: ignore[method-assign]


def test_over_tcp_only_known_keys_are_answered(tmp_path: Path) -> None:
    keys, others = tmp_path / "keys", tmp_path / "others"
    mask = os.umask(0o022)
    try:
        make_keys(keys)
        assert os.umask(mask) == 0o022  # as before
    finally:
        os.umask(mask)
    make_keys(others)
    (others / "server.key").write_bytes((keys / "server.key").read_bytes())
    with pytest.raises(UsageError, match="there are keys already"):
        make_keys(keys)
    assert stat.S_IMODE((keys / "server.key_secret").stat().st_mode) == 0o600
    desk = Desk()
    remote = RemoteControl("tcp://127.0.0.1:*", keys, desk.take, lambda: "idle")
    try:
        with Client(wire=CurveClient(remote.address, keys, PATIENCE_S)) as client:
            assert client.status().ok
            with pytest.raises(DaemonError, match="no op 'reboot'"):
                client.request("reboot")
        stranger = Client(wire=CurveClient(remote.address, others, 0.5))
        with stranger, pytest.raises(DaemonError, match="does not know this key"):
            stranger.status()
        assert [call.request.op for call in desk.calls] == ["status"]
    finally:
        remote.close()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda keys: (keys / "clients/client.key").unlink(), "no client could connect"),
        (lambda keys: (keys / "server.key_secret").unlink(), "no key can be read"),
        (lambda keys: (keys / "server.key_secret").write_text("x"), "no key can be read"),
    ],
)
def test_tcp_without_keys_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    make_keys(tmp_path)
    spoil(tmp_path)
    with pytest.raises(UsageError, match=why):
        RemoteControl("tcp://127.0.0.1:*", tmp_path, lambda call: None, lambda: "idle")


def test_the_end_of_tcp_control_does_not_wait_for_a_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(tmp_path)
    monkeypatch.setattr("recorder.recording.daemon.remote_control._POLL_S", 100.0)
    served = RemoteControl("tcp://127.0.0.1:*", tmp_path, lambda call: None, lambda: "idle")
    closing = threading.Thread(target=served.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
