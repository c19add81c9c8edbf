"""All emulated devices of a rig, each stepped by its own thread.

``python -m drivers.sim emulate`` reads the rig as a JSON object from stdin (``sensors``: a config's
entries; ``faults``: by sensor, the text of `parse_fault` after the dot; ``seed``), prints
``{"sources": {...}}``, and at its end ``{"injected": {...}}``.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from drivers.kit.emulator import EmulatedSource, Emulator
from drivers.kit.emulator_faults import Fault
from recorder.common.errors import ConfigError, DeviceError, SourceError
from recorder.common.files import Closeable
from recorder.config.settings import SensorEntry

EMULATORS: Final[Mapping[str, str]] = {
    "camera": "drivers.camera.http.emulator:CameraEmulator",
    "camera copy": "drivers.camera.rtsp.emulator:RtspCameraEmulator",
    "can": "drivers.can.emulator:CanEmulator",
    "gnss": "drivers.gnss.emulator:GnssEmulator",
    "hesai": "drivers.hesai.emulator:HesaiEmulator",
    "livox": "drivers.livox.emulator:LivoxEmulator",
    "mmwave": "drivers.mmwave.emulator:MmwaveEmulator",
    "ouster": "drivers.ouster.emulator:OusterEmulator",
    "robosense": "drivers.robosense.emulator:RobosenseEmulator",
    "udp": "drivers.udp.emulator:UdpEmulator",
    "velodyne": "drivers.velodyne.emulator:VelodyneEmulator",
    "xsens": "drivers.xsens.emulator:XsensEmulator",
}
"""Module and class of each driver's emulated device; they are imported on use."""
_LONGEST_WAIT_S = 0.02  # limit of the delay of answers to requests
_LATE_NS = 1_000_000_000


def make_emulator(sensor: SensorEntry, faults: Sequence[Fault], seed: int) -> Emulator:
    """Make the emulator of a sensor's device.

    A camera whose H.264 is recorded as it is, is an RTSP camera.

    Raises:
        ConfigError: the driver has no emulator.
    """
    copied = sensor.driver == "camera" and sensor.options["codec"] == "copy"
    place = EMULATORS.get("camera copy" if copied else sensor.driver)
    if place is None:
        raise ConfigError(f"no emulator for the driver {sensor.driver!r}", key=sensor.name)
    module, name = place.split(":")
    emulator: Emulator = getattr(importlib.import_module(module), name)(sensor, faults, seed)
    return emulator


@contextlib.contextmanager
def add_name(sensor: str) -> Iterator[None]:
    """Add the sensor's name to errors raised inside."""
    try:
        yield
    except (SourceError, DeviceError) as error:
        if str(error).startswith(f"{sensor}: "):
            raise
        raise type(error)(f"{sensor}: {error}") from error


class EmulatedRig(Closeable):
    """Emulated devices that run until they are closed.

    >>> with EmulatedRig(entries, {"lidar": [Fault("loss", rate=0.01)]}) as rig:
    ...     rig.sources["lidar"].source      # ouster://127.0.0.1:41235
    ...     rig.wait(10.0)

    Args:
        sensors: entries of a config.
        faults: by sensor.
        seed: of the choice of packets.

    Raises:
        ConfigError, SourceError, DeviceError: a device cannot be emulated; names the sensor.
    """

    def __init__(
        self,
        sensors: Sequence[SensorEntry],
        faults: Mapping[str, Sequence[Fault]],
        seed: int = 0,
    ) -> None:
        self.sources: dict[str, EmulatedSource] = {}
        self._emulators: dict[str, Emulator] = {}
        self._failures: list[BaseException] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        try:
            for number, sensor in enumerate(sensors):
                chosen = faults.get(sensor.name, ())
                with add_name(sensor.name):
                    emulator = make_emulator(sensor, chosen, seed * len(sensors) + number)
                    self._emulators[sensor.name] = emulator
                    self.sources[sensor.name] = emulator.start()
        except BaseException:
            self.close()
            raise
        for name, emulator in self._emulators.items():
            thread = threading.Thread(target=self._run, args=(emulator,), name=f"emulate-{name}")
            thread.start()
            self._threads.append(thread)

    def wait(self, seconds: float) -> bool:
        """Wait this long, or until every source has ended; return False if some have not.

        Raises:
            Exception: the exception of an emulator that failed.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._failures:
                raise self._failures[0]
            if all(emulator.finished for emulator in self._emulators.values()):
                return True
            time.sleep(min(left, _LONGEST_WAIT_S))
        return False

    @property
    def injected(self) -> dict[str, dict[str, int]]:
        """Number of injected faults, by sensor and kind."""
        return {name: dict(emulator.injected) for name, emulator in self._emulators.items()}

    def close(self) -> None:
        """Stop the threads and the devices."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for emulator in self._emulators.values():
            emulator.stop()

    def _run(self, emulator: Emulator) -> None:
        try:
            reported = False
            while not self._stop.is_set():
                due_ns = emulator.step(time.monotonic_ns())
                if emulator.late_ns > _LATE_NS and not reported:
                    reported = True
                    print(
                        f"{emulator.sensor.name}: this machine is too slow to emulate the device "
                        "in real time; its data are late, and their rate is below the nominal rate",
                        file=sys.stderr,
                        flush=True,
                    )
                wait_s = (due_ns - time.monotonic_ns()) / 1e9
                if wait_s > 0:
                    self._stop.wait(min(wait_s, _LONGEST_WAIT_S))
        except BaseException as error:  # noqa: BLE001  `wait` raises it again
            self._failures.append(error)
