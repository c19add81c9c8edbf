"""A bad link: passes bytes between a client and a server, counts them, and breaks when told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

_CHUNK = 65536


class Link:
    """Listens on a port of its own and connects each client to a server.

    Args:
        address: ``http://HOST:PORT`` of the server.

    Attributes:
        address: of this link, for clients.
        sent: bytes from clients so far.
        on_bytes: called with `sent` after each piece, from the link's threads.
        lose: bytes in the head of a request whose reply is lost, with the connection; then None.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._server = str(parts.hostname), int(parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent = 0
        self.on_bytes: Callable[[int], object] = lambda _: None
        self.lose: bytes | None = None
        self._loses: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        """Break all connections; new ones are made."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Break all connections for good, and wait for the threads' end."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(self._server)
            except OSError:
                return
            with server:
                with self._lock:
                    self._open |= {client, server}
                back = threading.Thread(target=self._pass, args=(server, client, False))
                back.start()
                self._pass(client, server, True)
                back.join()
                with self._lock:
                    self._open -= {client, server}

    def _pass(self, one: socket.socket, other: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := one.recv(_CHUNK):
                if counts:
                    with self._lock:
                        self.sent += len(data)
                        sent = self.sent
                    self.on_bytes(sent)
                    if self.lose is not None and self.lose in data[:500]:
                        self.lose = None
                        self._loses.add(other)
                elif one in self._loses:
                    self._loses.discard(one)
                    break
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
