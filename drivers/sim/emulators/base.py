"""The interface of an emulated device; `drivers.sim.emulators.rig` runs the devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drivers.sim.emulators.faults import Fault
from recorder.contract.config.settings import SensorEntry


@dataclass(frozen=True)
class EmulatedSource:
    """The source for recording an emulated device.

    Attributes:
        source: a sensor's ``source`` in a config.
        options: the driver's options that follow from the device.
    """

    source: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Emulator(ABC):
    """One emulated device on loopback or a pty.

    ::

        emulator = OusterEmulator(entry, faults=[Fault("loss", rate=0.01)], seed=1)
        source = emulator.start()
        while not emulator.finished:
            due_ns = emulator.step(time.monotonic_ns())   # does the due work
            ...                                           # wait until due_ns
        emulator.stop()

    The device's output depends only on the times passed to `step`, so a test may invent them.

    Args:
        sensor: a config's entry whose source feeds the device: the simulated world, or a capture.
        faults: the faults to inject, in any order.
        seed: of the choice of packets that faults hit.

    Attributes:
        injected: number of injected faults, by kind, in packets (or in the kind's own unit).
        finished: a finite source was sent completely.
        late_ns: delay of the latest output: positive if this machine is too slow.
    """

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        self.sensor = sensor
        self.faults = tuple(faults)
        self.seed = seed
        self.injected: Counter[str] = Counter()
        self.finished = False
        self.late_ns = 0

    @abstractmethod
    def start(self) -> EmulatedSource:
        """Bind sockets or open ptys; the device is reachable when this returns.

        Raises:
            SourceError: the feeding source is missing or invalid.
            DeviceError: an address is in use.
        """

    @abstractmethod
    def step(self, now_ns: int) -> int:
        """Answer requests and send due data; return when the next data are due, in the same time.

        Args:
            now_ns: CLOCK_MONOTONIC, or a test's own time; never decreasing.
        """

    @abstractmethod
    def stop(self) -> None:
        """Release sockets and ptys; may be called twice."""
