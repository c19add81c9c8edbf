"""Control requests over TCP, encrypted and only from known keys (CurveZMQ, RFC 26).

Keys are stored in a folder as ZeroMQ's own certificates: ``server.key`` and ``server.key_secret``,
``client.key`` and ``client.key_secret``; the daemon knows the public keys in ``clients/*.key``.
`make_keys` makes all of them::

    make_keys(folder)
    with CurveServer("tcp://127.0.0.1:5555", folder, waker) as server: ...
    with CurveClient("tcp://127.0.0.1:5555", folder) as client:
        client.exchange(b'{"op": "status"}')
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from recorder.bus.sockets import Waker, ZmqSocket
from recorder.common.errors import DeviceError, StorageError, UsageError

SERVER, CLIENT, CLIENTS = "server", "client", "clients"
_MARK = 16  # messages


def make_keys(folder: Path) -> None:
    """Make a pair of keys for the daemon and one for its first client; never replaces any.

    Raises:
        UsageError: the folder has keys already.
        StorageError: the folder cannot be written to.
    """
    clients = folder / CLIENTS
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        if any(folder.glob("*.key_secret")):
            raise UsageError(f"{folder}: there are keys already")
        mask = os.umask(0o077)
        try:
            clients.mkdir(exist_ok=True)
            zmq.auth.create_certificates(folder, SERVER)
            public, _ = zmq.auth.create_certificates(folder, CLIENT)
            (clients / f"{CLIENT}.key").write_bytes(Path(public).read_bytes())
        finally:
            os.umask(mask)
    except OSError as error:
        raise StorageError(f"{folder}: no keys can be made there: {error.strerror}") from None


def check_keys(keys: Path) -> None:
    """Check that a daemon can serve with this folder of keys.

    Raises:
        UsageError: a key is missing, or no client could connect.
    """
    _load(keys, SERVER)
    if not any((keys / CLIENTS).glob("*.key")):
        raise UsageError(f"{keys / CLIENTS}: holds no client's key: no client could connect")


class CurveServer(ZmqSocket):
    """Server of requests from known clients.

    Args:
        address: ``tcp://HOST:PORT``; port ``*`` is any that is free.
        keys: the folder of keys.
        waker: ends a `wait` from another thread.
        most_bytes: longest request; a client that sends a longer one is disconnected.

    Raises:
        UsageError: a key is missing, or the address is none.
        StorageError: the address cannot be bound.
    """

    def __init__(self, address: str, keys: Path, waker: Waker, most_bytes: int) -> None:
        check_keys(keys)
        public, secret = _load(keys, SERVER)
        clients = keys / CLIENTS
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._auth = ThreadAuthenticator(self._context)
        self._auth.start()
        self._auth.configure_curve(domain="*", location=str(clients))
        super().__init__(zmq.ROUTER, waker, self._context)
        self._socket.setsockopt(zmq.LINGER, 500)
        self._socket.setsockopt(zmq.MAXMSGSIZE, most_bytes)
        self._socket.setsockopt(zmq.SNDHWM, _MARK)
        self._socket.setsockopt(zmq.RCVHWM, _MARK)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, 5000)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        self._socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
        self._socket.setsockopt(zmq.CURVE_SERVER, 1)
        self._bind(address)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    def receive(self) -> tuple[bytes, bytes] | None:
        """Return the next request with its peer's identity; None if no request waits."""
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return None
            if len(frames) == 2:  # anything else is no client of ours
                return frames[0], frames[1]

    def send(self, peer: bytes, reply: bytes) -> None:
        """Send a reply; drop it if the peer is gone or cannot receive."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.send_multipart([peer, reply], zmq.NOBLOCK)

    def close(self) -> None:
        super().close()
        self._auth.stop()
        self._context.term()


class CurveClient(ZmqSocket):
    """Client of a `CurveServer`.

    Args:
        address: ``tcp://HOST:PORT``.
        keys: folder with ``client.key_secret`` and ``server.key``.
        timeout_s: longest wait for a reply.

    Raises:
        UsageError: a key is missing, or the address is none.
    """

    def __init__(self, address: str, keys: Path, timeout_s: float = 120.0) -> None:
        public, secret = _load(keys, CLIENT)
        server, _ = _certificate(keys / f"{SERVER}.key")
        self._address = address
        super().__init__(zmq.DEALER)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RCVTIMEO, round(timeout_s * 1000))
        self._socket.setsockopt(zmq.SNDTIMEO, round(min(timeout_s, 5.0) * 1000))
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        self._socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
        self._socket.setsockopt(zmq.CURVE_SERVERKEY, server)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self._socket.close()
            raise UsageError(f"{address}: {error}") from None

    def exchange(self, line: bytes) -> bytes:
        """Send a request and return its reply.

        Raises:
            DeviceError: no answer: there is no daemon, or it does not know this client's key.
        """
        try:
            self._socket.send(line)
            reply: bytes = self._socket.recv()
        except zmq.Again:
            raise DeviceError(
                f"{self._address}: no answer: no daemon is there, or it does not know this key"
            ) from None
        return reply


def _load(keys: Path, name: str) -> tuple[bytes, bytes]:
    path = keys / f"{name}.key_secret"
    public, secret = _certificate(path)
    if secret is None:
        raise UsageError(f"{path}: holds no secret key")
    return public, secret


def _certificate(path: Path) -> tuple[bytes, bytes | None]:
    try:
        return zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: no key can be read there: {error}") from None
