"""What an emulated device is; see `drivers.sim.emulators.rig` for what runs them."""

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
    """How to record from an emulated device.

    Attributes:
        source: a sensor's ``source`` in a config.
        options: of the driver, beside those that do not concern the device.
    """

    source: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Emulator(ABC):
    """One emulated device on loopback or a pty.

    ::

        emulator = OusterEmulator(entry, faults=[Fault("loss", rate=0.01)], seed=1)
        source = emulator.start()
        while not emulator.finished:
            due_ns = emulator.step(time.monotonic_ns())   # does what is due
            ...                                           # wait until due_ns
        emulator.stop()

    What it sends depends on the times handed to `step` alone, so that a test may make them up.

    Args:
        sensor: a config's entry whose source feeds the device: the simulated world, or a capture.
        faults: what is to go wrong, in any order.
        seed: of the choice of packets that faults hit.

    Attributes:
        injected: faults so far, by kind, in packets (or in what else the kind is counted in).
        finished: a source that ends was sent whole.
        late_ns: by how much the last that was sent was late: this machine does not keep up.
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
            SourceError: what feeds it is missing or wrong.
            DeviceError: an address is taken.
        """

    @abstractmethod
    def step(self, now_ns: int) -> int:
        """Answer requests and send what is due; returns when the next is due, in the same time.

        Args:
            now_ns: CLOCK_MONOTONIC, or a test's own; never less than the last one.
        """

    @abstractmethod
    def stop(self) -> None:
        """Release sockets and ptys; may be called twice."""
