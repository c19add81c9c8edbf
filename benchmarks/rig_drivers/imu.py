"""IMU of the rig load: 100 Hz, five samples a message, as the driver `xsens` sends them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from benchmarks.frames import SENSORS
from benchmarks.rig_drivers._player import PlayerDriver
from drivers.kit.driver import Sample
from drivers.kit.runner import main
from recorder.codecs.streams import ChannelSpec, StreamSpec

_UNITS = {"acc": "m/s^2", "avel": "rad/s", "rot": "rad"}


class ImuPlayer(PlayerDriver):
    """Player of acceleration, rate of turn and orientation, f4 [3] each."""

    rig: ClassVar = SENSORS["imu"]
    batch: ClassVar = 5  # 50 ms

    def spec(self) -> StreamSpec:
        return StreamSpec(
            self.sensor.name,
            tuple(ChannelSpec(name, "raw", "f4", (3,), "", unit) for name, unit in _UNITS.items()),
            rate_hz=self.rate_hz,
            device_clock=True,
        )

    def sample(self, at: int, t_ns: npt.NDArray[np.int64]) -> Sample:
        data = {name: self.frames[name][at : at + self.batch] for name in _UNITS}
        return Sample(self.sensor.name, t_ns, data, t_ns.copy())


if __name__ == "__main__":
    main(ImuPlayer)
