"""An emulated camera and an `HttpCamera` in one thread and on one made-up clock."""

from __future__ import annotations

import functools
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from drivers.camera.driver import CameraDriver
from drivers.camera.http.camera import HttpCamera, Url
from drivers.camera.http.emulator import CameraEmulator
from drivers.camera.model import SimulatedCamera, make_camera
from drivers.camera.model_output import make_jpeg
from drivers.camera.pictures import Missing, Note, Shot
from drivers.kit.emulator_faults import Fault
from recorder.common.errors import DeviceError
from recorder.config.options import check_options
from recorder.config.settings import SensorEntry
from tests.support.devices import make_entry, opened

SMALL: dict[str, Any] = {"width": 160, "height": 120, "fps": 20, "quality": 80}


def entry(
    scheme: str = "sim", address: str = "", loop: bool = False, **options: Any
) -> SensorEntry:
    return make_entry(CameraDriver, "camera", "camera", scheme, address, loop=loop, **options)


@functools.cache
def small_camera() -> SimulatedCamera:
    checked = check_options(CameraDriver.options, SMALL)
    return make_camera("camera", checked, (160, 120), SMALL["fps"])


@functools.cache
def small_jpeg(index: int) -> bytes:
    """Picture `index` of ``sim:`` with the options `SMALL`."""
    return make_jpeg(small_camera(), index, SMALL["quality"])


class Drawn:
    """Pictures for an emulator that were drawn before."""

    sequential = False
    fps = 20.0

    def jpeg(self, index: int) -> bytes | None:
        return small_jpeg(index)

    def close(self) -> None:
        pass


class Bench:
    """Steps the emulator whenever the camera waits; nothing depends on the wall clock.

    >>> bench = Bench([Fault("loss", rate=0.1)], width=64, fps=20)
    >>> camera = bench.camera()
    >>> camera.open()
    >>> events = bench.watch(camera, seconds=2.0)
    """

    def __init__(
        self, faults: Sequence[Fault] = (), sensor: SensorEntry | None = None, **options: Any
    ) -> None:
        self.now_ns = 1_000_000_000_000
        self.emulator = CameraEmulator(sensor or entry(**options), faults, seed=3)
        self.source = self.emulator.start()
        if options == SMALL:
            # Drawn once for all tests; one of them holds the emulator's own against these.
            self.emulator._pictures = Drawn()
        self.connections = 0

    def camera(self, **more: Any) -> HttpCamera:
        scheme, _, address = self.source.source.partition(":")
        return HttpCamera(
            "camera", scheme, address, connecting=self.connect, clock=self.clock, **more
        )

    def clock(self) -> int:
        return self.now_ns

    def connect(self, url: Url) -> Wire:
        self.connections += 1
        return Wire(self, socket.create_connection((url.host, url.port), timeout=60))

    def advance(self, until_ns: int) -> None:
        """Let the emulator work until its next event, at most until then."""
        before_ns = self.now_ns
        due_ns = self.emulator.step(before_ns)
        assert due_ns >= before_ns
        # A step may take its time, too.
        self.now_ns = max(self.now_ns, min(max(due_ns, before_ns + 100_000), until_ns))

    def record(self, seconds: float, **more: Any) -> list[Shot | Note]:
        """What a camera gives from its opening on, which is closed then."""
        with opened(self.camera(**more)) as camera:
            return self.watch(camera, seconds)

    def record_all(self) -> list[Shot | Note]:
        """The same until the camera ends the stream."""
        events: list[Shot | Note] = []
        ended = pytest.raises(DeviceError, match="ended the stream")
        with opened(self.camera()) as camera, ended:
            while True:
                events += camera.read(0.05)
        return events

    def watch(self, camera: HttpCamera, seconds: float) -> list[Shot | Note]:
        """What the camera gives in so many seconds of the made-up clock."""
        end_ns = self.now_ns + round(seconds * 1e9)
        events: list[Shot | Note] = []
        while self.now_ns < end_ns:
            events += camera.read(0.05)
        return events


class Wire:
    """A socket that steps the emulator where it would wait."""

    def __init__(self, bench: Bench, real: socket.socket) -> None:
        self._bench = bench
        self._real = real
        self._timeout_ns = 0

    def settimeout(self, value: float) -> None:
        self._timeout_ns = round(value * 1e9)
        self._real.settimeout(60)

    def sendall(self, data: bytes) -> None:
        self._real.sendall(data)

    def recv(self, size: int) -> bytes:
        end_ns = self._bench.now_ns + self._timeout_ns
        self._real.setblocking(False)
        while True:
            try:
                return self._real.recv(size)
            except BlockingIOError:
                if self._bench.now_ns >= end_ns:
                    raise TimeoutError from None
                self._bench.advance(end_ns)

    def getpeername(self) -> Any:
        return self._real.getpeername()

    def close(self) -> None:
        self._real.close()


def lost(events: Sequence[Shot | Note], cause: str) -> int:
    return sum(
        event.picture.count
        for event in events
        if isinstance(event, Shot)
        and isinstance(event.picture, Missing)
        and event.picture.cause == cause
    )


def jpegs(events: Sequence[Shot | Note]) -> list[bytes]:
    return [e.picture for e in events if isinstance(e, Shot) and isinstance(e.picture, bytes)]


def notes(events: Sequence[Shot | Note]) -> list[dict[str, Any]]:
    return [event.values for event in events if isinstance(event, Note)]
