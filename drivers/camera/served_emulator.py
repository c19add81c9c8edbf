"""The common part of emulated network cameras: clients over TCP, and faults of the whole camera."""

from __future__ import annotations

import contextlib
import socket
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from drivers.kit.emulator import LOOPBACK, Emulator
from drivers.kit.emulator_faults import DEVICE_KINDS, Fault
from recorder.common.errors import DeviceError
from recorder.config.settings import SensorEntry

POLL_NS: Final = 5_000_000
_MOST_CLIENTS: Final = 32


@dataclass(eq=False)
class Client:
    """A connection.

    Attributes:
        socket: does not block.
        host: address of the client.
        request: the bytes received so far.
        waiting: the bytes to send.
        playing: the client receives pictures.
    """

    socket: socket.socket
    host: str
    request: bytearray = field(default_factory=bytearray)
    waiting: bytearray = field(default_factory=bytearray)
    playing: bool = False


C = TypeVar("C", bound=Client)


class ServedCamera(Emulator, Generic[C]):
    """A camera that serves clients on loopback.

    Attributes:
        client_kind: class of the connections.
        skipped: units that clients missed because they read too slowly.
    """

    client_kind: type[C]

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        super().__init__(sensor, faults, seed)
        self._device_faults = [f for f in faults if f.kind in DEVICE_KINDS]
        self._begun: set[int] = set()  # indices of device faults that have begun
        self._clients: list[C] = []
        self._listener: socket.socket | None = None
        self._port = 0
        self._fps = 0.0
        self._start_ns: int | None = None
        self._first_ns: int | None = None  # time of the first sent picture, since the start
        self._next = 0  # index of the next picture
        self._power_on_ns = 0  # since the start
        self._jump_ns = 0
        self._absent = self._rebooting = self._watched = self._ended = False
        self.skipped = 0

    @property
    @abstractmethod
    def _sequential(self) -> bool:
        """Pictures are taken one after the other, from a first client on."""

    @abstractmethod
    def _receive(self, client: C, data: bytes) -> bool:
        """Answer a client's requests; return False if the client has to leave."""

    @abstractmethod
    def _skip(self, elapsed_ns: int) -> None:
        """Skip the pictures up to a time: no client receives them."""

    @abstractmethod
    def _picture(self, due_ns: int) -> None:
        """Take picture `_next` and send it; after the last one, set `_ended`."""

    @abstractmethod
    def _reappear(self, elapsed_ns: int, /, *, rebooted: bool) -> None:
        """Continue after an absence."""

    def step(self, now_ns: int) -> int:
        if self._start_ns is None or (self._sequential and not self._watched):
            self._start_ns = now_ns
        elapsed_ns = now_ns - self._start_ns
        self._begin_faults(elapsed_ns)
        if self._absent:
            self._skip(elapsed_ns)
            return now_ns + POLL_NS
        self._accept()
        self._serve()
        if not self._sequential and not any(client.playing for client in self._clients):
            self._skip(elapsed_ns)
        due_ns = self._due_ns(self._next)
        # One picture per step, so that each is sent even if drawing takes longer than a period.
        waits = self._sequential and not self._watched
        if not waits and not self._ended and due_ns <= elapsed_ns:
            self.late_ns = elapsed_ns - due_ns
            self._picture(due_ns)
        self._serve()
        self.finished |= self._ended and not self._clients
        return max(now_ns, min(now_ns + POLL_NS, self._start_ns + self._due_ns(self._next)))

    def _listen(self) -> None:
        self._listener = self._bind(socket.SOCK_STREAM, self._port)
        self._listener.listen()
        self._port = int(self._listener.getsockname()[1])

    def _due_ns(self, index: int) -> int:
        return round(index * 1e9 / self._fps)

    def _begin_faults(self, elapsed_ns: int) -> None:
        if self._first_ns is None:
            return
        t_s = (elapsed_ns - self._first_ns) / 1e9
        absent = False
        for index, fault in enumerate(self._device_faults):
            if t_s < fault.at_s:
                continue
            leaves = fault.kind in ("unplug", "reboot")
            if index not in self._begun and fault.kind != "stall":
                self._begun.add(index)
                self.injected[fault.kind] += 1
                self._jump_ns += round(fault.value * 1e9)
                self._rebooting |= fault.kind == "reboot"
                if leaves:
                    self._hang_up()
            absent |= leaves and fault.is_active(t_s)
        assert self._listener is not None
        if absent and not self._absent:
            self._listener.close()
            self._listener = self._bind(socket.SOCK_STREAM, self._port)  # refuses, without listen
        elif self._absent and not absent:
            self._listener.listen()
            rebooted, self._rebooting = self._rebooting, False
            if rebooted:
                self._power_on_ns, self._jump_ns = elapsed_ns, 0
            self._reappear(elapsed_ns, rebooted=rebooted)
        self._absent = absent

    def _count_stall(self, t_s: float) -> bool:
        """Return whether the camera sends nothing at a time, and count such times."""
        active = (fault for fault in self._device_faults if fault.is_active(t_s))
        stalls = any(fault.kind == "stall" for fault in active)
        if stalls:
            self.injected["stall"] += 1
        return stalls

    def _bind(self, kind: socket.SocketKind, port: int) -> socket.socket:
        made = socket.socket(socket.AF_INET, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(kind == socket.SOCK_STREAM))
        made.setblocking(False)
        try:
            made.bind((LOOPBACK, port))
        except OSError as error:
            made.close()
            where = f"{self.sensor.name}: {LOOPBACK}:{port}"
            raise DeviceError(f"{where}: {error.strerror}") from None
        return made

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):  # no connection is waiting, or the client has left
            while True:
                made, address = self._listener.accept()
                made.setblocking(False)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if len(self._clients) >= _MOST_CLIENTS:
                    made.close()
                else:
                    self._clients.append(self.client_kind(made, address[0]))

    def _serve(self) -> None:
        for client in list(self._clients):
            try:
                alive = self._read(client) and self._send(client)
            except BlockingIOError:
                alive = True
            except OSError:
                alive = False
            if not alive:
                client.socket.close()
                self._clients.remove(client)

    def _read(self, client: C) -> bool:
        try:
            data = client.socket.recv(4096)
        except BlockingIOError:
            return True
        return bool(data) and self._receive(client, data)

    def _send(self, client: C) -> bool:
        """Send the waiting bytes; return False if the connection is to be closed."""
        while client.waiting:
            del client.waiting[: client.socket.send(memoryview(client.waiting)[: 1 << 20])]
        return True

    def _hang_up(self) -> None:
        for client in self._clients:
            client.socket.close()
        self._clients.clear()
