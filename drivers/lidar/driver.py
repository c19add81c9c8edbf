"""Lidars of any maker whose ROS 2 driver publishes point clouds.

The stream has the sensor's name, and a sample is a sweep: ``points.bin`` with as many points as
came, by columns, and ``grid`` u4 [2], the rows and columns of the cloud.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from drivers.kit.simulated_clock import CLOCK_OPTION
from drivers.kit.source_driver import SourceDriver
from drivers.kit.topics.connect import TOPIC_FORMS, TOPIC_OPTIONS, TOPIC_SCHEMES
from drivers.lidar.model import START_NS
from drivers.lidar.simulated import SimulatedSource
from drivers.world import WORLD_OPTIONS
from drivers.world.faults import LIDAR_FAULTS, fault_option
from drivers.world.mounts import MOUNT_OPTION
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable


class LidarDriver(SourceDriver):
    """Records point clouds: ``sensor_msgs/msg/PointCloud2``, and CustomMsg of Livox's drivers.

    The columns are ``xyz`` in m and, where the clouds have them, ``intensity``, ``ring`` u2 and
    ``t_offset`` u4, the ns of each point after the sweep's begin, and all other fields by their
    names (`recorder.formats.ros2.clouds`).  What a cloud lacks is not made up, and points that are
    NaN stay.  A sweep's stamp is the time of its last point; its begin is that of the cloud's
    header, or of the first point if that is earlier.

    ``bag:`` and ``mcap:`` play a topic of a recording (`drivers.kit.mcap_source`); a cloud that
    cannot be read is `Lost`, cause ``corrupt``; one with other fields than the first ones, cause
    ``changed``.  ``ros2:`` and ``zenoh:`` receive a topic (`drivers.kit.topics.source`); a cloud
    with other fields than the first ones ends the stream.

    >>> options = check_options(LidarDriver.options, {})
    >>> driver = make_driver(LidarDriver, {"name": "lidar", "scheme": "bag", ...})
    >>> (spec,) = driver.open()   # SourceError names the file and its fault
    >>> sample = driver.read()
    >>> dtype = points_dtype(spec.channel("points.bin").columns)
    >>> unpack_points(sample.data["points.bin"][0], dtype, "lidar")["xyz"]    # f4 [points, 3]
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "beams": Option("int", 32, "sim: number of beams", minimum=1, maximum=256),
        "columns": Option("int", 900, "sim: firings in a turn", minimum=16, maximum=8192),
        "rate": Option("float", 10.0, "sim: turns per second", minimum=0.1, maximum=50),
        "seed": Option("int", 0, "sim: seed of the world and the noise", minimum=0),
        **WORLD_OPTIONS,
        "clock": CLOCK_OPTION,
        "faults": fault_option(LIDAR_FAULTS),
        "noise": Option(
            "float", 1.0, "sim: scale of all noise; 0: no noise", minimum=0, maximum=100
        ),
        "mount": MOUNT_OPTION,
        **TOPIC_OPTIONS,
    }
    schemes: ClassVar[dict[str, str]] = {
        "sim": "a drive past houses, vehicles, people and poles",
        "bag": "PATH[#TOPIC]: a topic of clouds in a ROS 2 bag or an MCAP file",
        "mcap": "as bag",
        **TOPIC_FORMS,
    }
    live_schemes: ClassVar[frozenset[str]] = TOPIC_SCHEMES
    recorded_kind: ClassVar[str] = "lidar"
    sim_origin_ns = START_NS

    def open(self) -> Sequence[StreamSpec]:
        """Open the simulated lidar; the kit plays all other sources."""
        return self.begin(SimulatedSource(self.sensor))
