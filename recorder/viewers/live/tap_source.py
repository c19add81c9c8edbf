"""Drivers' taps as the hub's source: one thread that subscribes to the watched streams.

A tap's topics are prefixes, and a tap delivers the oldest message first; the thread drains every
tap, so that the hub holds the newest message.  A tap names its streams only to a subscriber: the
thread subscribes to each stream that the daemon reports until its declaration has come.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from recorder.bus.sockets import TapReader, Waker
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ProtocolError
from recorder.viewers.live.hub import Hub

_WAIT_S = 5.0


class TapSource:
    """Hub source of the drivers' taps; call `update` with each status of the daemon::

    source = TapSource(hub)
    hub.attach(source)
    source.update(status["taps"], {"camera": ["camera"], "lidar": ["lidar", "lidar_imu"]})
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._waker = Waker()
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        self._taps: dict[str, tuple[str, ...]] = {}  # streams by address
        self._sensors: dict[str, str] = {}
        self._closed = False
        self._declared: dict[str, dict[str, Any]] = {}  # of the thread: as they came
        self._thread = threading.Thread(target=self._run, name="taps", daemon=True)
        self._thread.start()

    def want(self, streams: frozenset[str]) -> None:
        with self._lock:
            self._wanted = streams
        self._waker.wake()

    def update(self, taps: Mapping[str, str], streams: Mapping[str, Iterable[str]]) -> None:
        """Set the sensors and their taps; thread-safe.

        Args:
            taps: address of each sensor's tap.
            streams: names of each sensor's streams, as far as they are known.
        """
        found = {address: tuple(streams.get(name, ())) for name, address in taps.items()}
        with self._lock:
            if found == self._taps:
                return
            self._taps = found
            self._sensors = {name: sensor for sensor in taps for name in streams.get(sensor, ())}
        named = {name for names in found.values() for name in names}
        for gone in self._hub.specs.keys() - named:
            self._hub.remove(gone)
        self._waker.wake()

    def close(self) -> None:
        self._closed = True
        self._waker.wake()
        self._thread.join()
        self._waker.close()

    def _run(self) -> None:
        with TapReader(self._waker) as reader:
            while not self._closed:
                reader.subscribe(self._plan())
                for message in reader.receive(_WAIT_S):
                    if message.kind is Kind.JOIN:
                        self._declare(message)
                    else:
                        self._hub.put(message)

    def _plan(self) -> dict[str, frozenset[str]]:
        with self._lock:
            wanted, taps = self._wanted, self._taps
        for name in self._declared.keys() - self._hub.specs.keys():
            del self._declared[name]
        return {
            address: frozenset(s for s in streams if s in wanted or s not in self._declared)
            for address, streams in taps.items()
        }

    def _declare(self, message: Message) -> None:
        """Declare a stream; the message repeats every second, and only a new one is decoded."""
        wire = message.values.get("stream")
        if not isinstance(wire, dict) or self._declared.get(message.stream) == wire:
            return
        try:
            spec = StreamSpec.from_wire(wire)
        except ProtocolError:
            return
        if spec.name != message.stream:
            return
        with self._lock:
            sensor = self._sensors.get(spec.name)
        self._declared[spec.name] = wire
        self._hub.declare(spec, sensor)
