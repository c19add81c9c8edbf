"""Inertial measurement units of any maker: topics of ROS 2 and Zenoh, recordings, simulated.

The stream has the sensor's name and the channels ``acc``, ``avel`` and ``rot``, and ``quat`` where
the messages have an orientation.  The kit converts messages (`drivers.kit.mcap_rows`), of topics
(`drivers.kit.topics.source`) as of recordings.  Devices of Xsens have a driver of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from drivers.imu.simulated import SimulatedSource
from drivers.kit.simulated_clock import CLOCK_OPTION
from drivers.kit.source_driver import ReadDriver
from drivers.kit.topics.connect import TOPIC_FORMS, TOPIC_OPTIONS, TOPIC_SCHEMES
from drivers.world import SEED_OPTION, WORLD_OPTIONS, mounts
from drivers.world.faults import IMU_FAULTS, fault_option
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable


class ImuDriver(ReadDriver):
    """Records the messages of an IMU (``sensor_msgs/Imu``), or simulates one.

    A sample is a message.  ``t_dev`` is its stamp.

    >>> driver = ImuDriver(SensorConfig("imu", "sim", "", check_options(ImuDriver.options, {})))
    >>> (spec,) = driver.open()
    >>> sample = driver.read()
    >>> sample.data["acc"]               # f4 [n, 3], m/s^2
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "rate": Option("float", 100.0, "sim: samples a second", minimum=1.0, maximum=2000.0),
        **WORLD_OPTIONS,
        "clock": CLOCK_OPTION,
        "faults": fault_option(IMU_FAULTS),
        "seed": SEED_OPTION,
        "noise": Option("float", 1.0, "sim: scale of bias and noise", minimum=0.0, maximum=1000.0),
        "mount": mounts.MOUNT_OPTION,
        **TOPIC_OPTIONS,
    }
    recorded_kind = "imu"
    schemes: ClassVar[dict[str, str]] = {
        "vrs": "PATH[#STREAM]: an IMU's stream in a VRS file",
        "bag": "PATH[#TOPIC]: an IMU's topic in a ROS 2 bag (MCAP, SQLite)",
        "mcap": "as bag",
        "sim": "an IMU on the vehicle of the simulated world, endless",
        **TOPIC_FORMS,
    }
    live_schemes: ClassVar[frozenset[str]] = TOPIC_SCHEMES

    def open(self) -> Sequence[StreamSpec]:
        """Open the simulated IMU; the kit opens all other sources."""
        source = self.source = SimulatedSource(self.sensor)
        return [source.spec]
