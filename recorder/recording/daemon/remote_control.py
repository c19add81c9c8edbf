"""Control over TCP, only if the config enables it, and only with keys.

`recorder.bus.control.keys` has the keys.

The requests and replies are those of the control socket, one per message.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recorder.bus.control.keys import CurveServer
from recorder.bus.control.requests import MOST_BYTES, parse_request
from recorder.bus.control.server import Call, Take, encode_reply, refusal
from recorder.bus.sockets import Waker
from recorder.common.errors import UsageError
from recorder.common.process_setup import start_thread
from recorder.config.loading import Config

_POLL_S = 1.0
MOST_CALLS = 32


class RemoteControl:
    """Server of control requests over TCP, in a thread of its own.

    Args:
        address, keys: as for `CurveServer`.
        take: receives each call.
        state: returns the daemon's state in one word.
    """

    def __init__(self, address: str, keys: Path, take: Take, state: Callable[[], str]) -> None:
        self._take = take
        self._state = state
        self._waker = Waker()
        self._server = CurveServer(address, keys, self._waker, MOST_BYTES)
        self.address = self._server.address
        self._answers: deque[tuple[bytes, dict[str, Any]]] = deque()
        self._under_way = 0
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="remote", daemon=True)
        start_thread(self._thread)

    def close(self) -> None:
        """Send the answers that are ready, and stop the server."""
        self._ending = True
        self._waker.wake()
        self._thread.join()
        self._server.close()
        self._waker.close()

    def _run(self) -> None:
        while not self._ending:
            self._server.wait(_POLL_S)
            self._send_answers()
            while (received := self._server.receive()) is not None:
                self._handle(*received)
        self._send_answers()

    def _handle(self, peer: bytes, line: bytes) -> None:
        try:
            if self._under_way >= MOST_CALLS:
                raise UsageError(f"{MOST_CALLS} requests are under way already")
            request = parse_request(line)
        except UsageError as error:
            self._server.send(peer, encode_reply(refusal(error, self._state())))
            return

        def send(reply: dict[str, Any]) -> None:
            self._answers.append((peer, reply))
            self._waker.wake()

        self._under_way += 1
        self._take(Call(request, send))

    def _send_answers(self) -> None:
        while self._answers:
            peer, reply = self._answers.popleft()
            self._under_way -= 1
            self._server.send(peer, encode_reply(reply))


def serve_tcp(config: Config, take: Take, state: Callable[[], str]) -> RemoteControl:
    """Start the server of the config's ``control.tcp``.

    Raises:
        ConfigError: the keys, which TCP needs, are missing or wrong; or the address is not valid.
    """
    control = config.control
    if control.curve_keys is None:
        raise config.error("control.tcp", "needs control.curve_keys: TCP is served with keys only")
    address = str(control.tcp)
    if "://" not in address:
        address = f"tcp://{address}"
    if not address.startswith("tcp://"):
        raise config.error("control.tcp", f"{address!r} is not of the form tcp://HOST:PORT")
    try:
        return RemoteControl(address, control.curve_keys, take, state)
    except UsageError as error:
        raise config.error("control.curve_keys", str(error)) from None
