"""The simulated IMU as a source."""

from __future__ import annotations

import math

from drivers.kit.driver import Sample, SensorConfig
from drivers.kit.mcap_rows import inertial_channels
from drivers.kit.recorded_source import SHORT_BATCH_NS
from drivers.world import world_settings
from drivers.world.imu import make_imu
from recorder.codecs.streams import StreamSpec


class SimulatedSource:
    """Batches of an IMU on the vehicle of the simulated world.

    Args:
        sensor: the entry, with the options of `drivers.imu.driver`.

    Attributes:
        spec: the stream.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        rate_hz = float(sensor.options["rate"])
        self._imu = make_imu(sensor.name, sensor.options, rate_hz)
        self._batch = max(1, math.floor(rate_hz * SHORT_BATCH_NS / 1e9))
        self._next = 0
        self.spec = StreamSpec(
            sensor.name,
            inertial_channels(()),
            rate_hz=rate_hz,
            device_clock=True,
            description="simulated IMU",
            settings={**world_settings(sensor.options), "simulated": True},
        )

    def read(self) -> Sample:
        """Return the next samples."""
        found = self._imu.samples(self._next, self._batch)
        self._next += self._batch
        data = {"acc": found.acc, "avel": found.avel, "rot": found.rot}
        return Sample(self.spec.name, found.t_ns, data, found.t_dev_ns)

    def close(self) -> None:
        """Release nothing."""
