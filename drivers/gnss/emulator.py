"""An emulated u-blox receiver that a TCP port serves, as a serial server does.

It sends NAV-PVT, NAV-COV and NAV-EOE of the simulated receiver (encoded by pyubx2), or the bytes of
a recorded log.  A message is sent `DELAY_NS` after its epoch.  ``loss``, ``corrupt``,
``duplicate`` and ``reorder`` hit single messages; ``stall``: nothing is sent; ``unplug``: the
connection is closed, and no client can connect.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from drivers.gnss.packets import FrameParser
from drivers.gnss.simulated import make_receiver
from drivers.gnss.stream import Reception
from drivers.kit.emulator import EmulatedSource, Emulator
from drivers.kit.emulator_faults import Fault
from drivers.kit.satellite_navigation import SECOND_NS, WEEK_NS
from recorder.common.errors import DeviceError, SourceError, need_extra
from recorder.config.settings import SensorEntry

DELAY_NS: Final = 40_000_000
"""From an epoch to its first byte; a real receiver needs 30 to 100 ms."""
_IDLE_NS: Final = 20_000_000
_CHUNK: Final = 1 << 16


def encode_epoch(gps_ns: int, row: Mapping[str, Any]) -> list[bytes]:
    """Encode the messages of an epoch.

    Args:
        gps_ns: its time.
        row: value by channel.

    Raises:
        SourceError: pyubx2 is not installed.
    """
    try:
        from pyubx2 import GET, UBXMessage
    except ImportError as error:
        raise SourceError(f"{need_extra('gnss')}: {error}") from None
    utc_ns = int(row["utc"])
    seconds, nano = divmod(utc_ns, SECOND_NS)
    t = datetime.fromtimestamp(seconds, UTC)
    tow_ms = gps_ns % WEEK_NS // 1_000_000
    latitude, longitude, height = (float(v) for v in row["pos"])
    north, east, down = (round(float(v) * 1e3) for v in row["vel"])
    sigma = [float(row["cov"][k][k]) ** 0.5 for k in range(3)]
    pvt: dict[str, Any] = {
        "iTOW": tow_ms, "year": t.year, "month": t.month, "day": t.day, "hour": t.hour,
        "min": t.minute, "second": t.second, "nano": nano, "validDate": 1, "validTime": 1,
        "fullyResolved": 1, "fixType": int(row["fix"]), "gnssFixOk": 1,
        "numSV": int(row["sats"]), "lon": longitude, "lat": latitude,
        "height": round(height * 1e3), "hAcc": round(sigma[0] * 1e3),
        "vAcc": round(sigma[2] * 1e3), "velN": north, "velE": east, "velD": down,
    }  # fmt: skip
    names = ("NN", "NE", "ND", "EE", "ED", "DD")
    places = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
    cov = {
        f"posCov{name}": float(row["cov"][i][j]) for name, (i, j) in zip(names, places, strict=True)
    }
    messages = (
        UBXMessage("NAV", "NAV-PVT", GET, **pvt),
        UBXMessage("NAV", "NAV-COV", GET, iTOW=tow_ms, posCovValid=1, **cov),
        UBXMessage("NAV", "NAV-EOE", GET, iTOW=tow_ms),
    )
    return [bytes(message.serialize()) for message in messages]


class GnssEmulator(Emulator):
    """A receiver of a config's ``sim:`` or ``file:`` entry."""

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        super().__init__(sensor, faults, seed)
        self._silent = [f for f in faults if f.kind in ("stall", "unplug")]
        self._listener: socket.socket | None = None
        self._hosts: list[socket.socket] = []
        self._epoch_ns: int | None = None
        self._epochs = self._feed()
        self._next: tuple[int, list[bytes]] | None = None
        self._waiting: deque[bytes] = deque()

    def _feed(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield when each epoch is due after the start, and its messages."""
        if self.sensor.scheme == "file":
            yield from _log(Path(self.sensor.address))
            return
        receiver = make_receiver(self.sensor.name, self.sensor.options)
        for number in itertools.count():
            times, data = receiver.epochs(number, 1)
            row = {name: values[0] for name, values in data.items()}
            due_ns = round(number * 1e9 / receiver.rate_hz) + DELAY_NS
            yield due_ns, encode_epoch(int(times[0]), row)

    def start(self) -> EmulatedSource:
        self._listen(0)
        assert self._listener is not None
        self._port = self._listener.getsockname()[1]
        self._next = next(self._epochs)
        return EmulatedSource(f"tcp:127.0.0.1:{self._port}", {"latency_ms": DELAY_NS / 1e6})

    def _listen(self, port: int) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise DeviceError(f"{self.sensor.name}: {error.strerror}") from None
        self._listener.listen()
        self._listener.setblocking(False)

    def stop(self) -> None:
        for host in self._hosts:
            host.close()
        self._hosts.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def step(self, now_ns: int) -> int:
        if self._epoch_ns is None:
            self._epoch_ns = now_ns
        now_s = (now_ns - self._epoch_ns) / 1e9
        silent = next((f for f in self._silent if f.is_active(now_s)), None)
        if silent is not None and silent.kind == "unplug":
            self.stop()
        elif self._listener is None:
            self._listen(self._port)
        self._accept()
        while self._next is not None and self._epoch_ns + self._next[0] <= now_ns:
            due_ns, messages = self._next
            self.late_ns = now_ns - self._epoch_ns - due_ns
            if silent is not None:
                self.injected[silent.kind] += len(messages)
            else:
                for message in messages:
                    for packet in self._packet_faults.apply(due_ns / 1e9, message):
                        self._send(packet)
            self._next = next(self._epochs, None)
        self.finished = self._next is None
        due_ns = now_ns + _IDLE_NS
        return due_ns if self._next is None else min(due_ns, self._epoch_ns + self._next[0])

    def _accept(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(BlockingIOError):
                host, _ = self._listener.accept()
                host.setblocking(False)
                self._hosts.append(host)

    def _send(self, packet: bytes) -> None:
        for host in list(self._hosts):
            try:
                host.sendall(packet)
            except OSError:  # the host has gone, or accepts no bytes
                host.close()
                self._hosts.remove(host)


def _log(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the frames of a log, due at their epochs' times."""
    reception, parser = Reception(), FrameParser()
    first: int | None = None
    at_ns = DELAY_NS
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                frames = list(parser.feed(chunk))
                for frame in frames:
                    for row in reception.feed(frame.data):
                        first = row.gps_ns if first is None else first
                        at_ns = max(at_ns, row.gps_ns - first + DELAY_NS)
                    yield at_ns, [frame.data]
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
