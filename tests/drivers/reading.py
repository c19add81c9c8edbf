"""Reads drivers, and what emulators send, as the tests of several sensors do."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Protocol


class Sender(Protocol):
    """An emulator that sends datagrams."""

    def start(self) -> Any: ...

    def step(self, now_ns: int) -> int: ...

    def stop(self) -> None: ...


@contextlib.contextmanager
def receiving(emulator: Sender) -> Iterator[socket.socket]:
    """A socket at the address to which it sends."""
    _, address = emulator.start().source.split(":", 1)
    host, port = address.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.bind((host, int(port)))
        made.settimeout(60)
        try:
            yield made
        finally:
            emulator.stop()


def steps_of(emulator: Sender, made: socket.socket, until_ms: int) -> list[tuple[int, bytes]]:
    """What it sends, with the time of the step in ms, by the times that it asks for."""
    now_ns, got = 0, []
    made.setblocking(False)
    while now_ns <= until_ms * 1_000_000:
        due_ns = emulator.step(now_ns)
        with contextlib.suppress(BlockingIOError):
            while True:
                got.append((now_ns // 1_000_000, made.recv(65536)))
        now_ns = max(due_ns, now_ns + 1)
    return got
