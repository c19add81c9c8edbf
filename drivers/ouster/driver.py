"""Ouster lidars and their built-in IMUs: network sensors, captures, OSF files, simulated sensors.

ouster-sdk 1.0 decodes all lidar and IMU profiles that it supports.  The recorded values equal
ouster-sdk's fields exactly and are staggered (as measured).  This module adds what a recording
needs: host stamps, order of time, and counts of missing data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drivers.kit.simulated_clock import CLOCK_OPTION
from drivers.kit.source_driver import SourceDriver
from drivers.kit.topics.connect import TOPIC_FORMS, TOPIC_OPTIONS, TOPIC_SCHEMES
from drivers.world import WORLD_OPTIONS
from drivers.world.faults import LIDAR_FAULTS, fault_option
from drivers.world.mounts import MOUNT_OPTION
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option

if TYPE_CHECKING:
    from drivers.ouster.bags import BagSource
    from drivers.ouster.setup import Setup
    from drivers.ouster.topics import PacketTopics


class OusterDriver(SourceDriver):
    """Records an Ouster lidar as the stream NAME and its IMU as NAME_imu, on one time base.

    NAME has one sample per sweep, with arrays [beams, columns]: ``rng`` u2 mm (saturates at 65535),
    ``rng_far`` u4 mm (range minus ``rng``), ``rfl`` u1, ``nir`` u2; dual returns add ``rng2``,
    ``rng2_far``, ``rfl2``.  ``t_col`` u8 ns [columns] is the device time of each column.  ``t_ns``
    is the host stamp of the sweep's last packet, ``t_dev`` the device time of its last column.
    Missing columns hold zeros, in ``t_col`` too, and a `State`
    ``{"columns_missing": n, "frame_id": f}`` counts them.  Missing sweeps are detected by the gap
    in the frame ids and are `Lost`, cause ``device``.  A first or last sweep that the capture holds
    only in part is recorded.

    NAME_imu has ``acc`` f4[3] m/s^2 and ``avel`` f4[3] rad/s, in the IMU's axes, with the stamp of
    the packet.  A packet of several measurements is one batch.  Items are ordered by their last
    stamps.  From OSF files, only IMU data of the profile ACCEL32_GYRO32_NMEA is recorded.

    A source without host stamps is timed by the device's clock.  A `State` also reports a restart
    of the sensor (``sensor_restarted``) and a backward step of the host's clock during the capture
    (``host_clock_step_ns``).  Packets whose size differs from the metadata's are `Lost`, cause
    ``corrupt``, without a count.

    A sensor on the network (``ouster:``) is configured over its HTTP API: it gets the settings of
    the options and this machine as its destination.  It is reinitialized only where its settings
    differ.  ``udp:`` only receives packets.  With both, `t_ns` is the kernel's stamp of the
    packets' arrival, and a missing sweep is `Lost`, cause ``network``.  A `State` reports the
    settings, the metadata's SHA-256, ``time_sync`` (the clock's source and locks, at every change),
    ``ptp_offset_from_master_ns``, ``settings_refused``, ``settings_stored`` (with `persist`),
    ``alert_flags`` and ``alerts``, ``device_clock_step_ns``, a sweep's duplicate packets
    (``packets_repeated``), its damaged packets (``packets_corrupt``; needs firmware that sends a
    checksum), the packets that the kernel dropped (``packets_dropped_by_kernel``) and, after a
    restart, the new ``metadata``.  If the new metadata has another form, or no data arrives for
    ``timeout_s``, `read` raises DeviceError.  Where the kernel limits the socket buffer, a warning
    names the command that raises the limit.

    With all sources, ``packets_missing`` in a sweep's `State` and in the detail of a `Lost` counts
    the packets that are missing or damaged.  Captures and bags are checked for damaged and repeated
    packets, too; ``packets_snaplen`` and ``packets_fragments`` count the packets that a capture
    holds only in part.  Gaps of the IMU are `Lost` of NAME_imu, counted by the device's time.

    >>> options = check_options(OusterDriver.options, {"metadata": "a.json"})
    >>> driver = OusterDriver(SensorConfig("lidar", "pcap", "a.pcap", options))
    >>> specs = driver.open()   # SourceError names the file and its fault
    >>> item = driver.read()    # Sample, State or Lost; EndOfSource at the end of a file
    >>> driver.close()          # open() may be called again

    A truncated or damaged file gives its complete items and then raises SourceError.
    """

    options = {
        "metadata": Option(
            "path",
            None,
            "the sensor's metadata (JSON); required for udp; pcap default: PATH.json; "
            "bag default: the topic `metadata` beside the packets",
        ),
        "compression": Option(
            "str", "lzmaf", "format of the image channels", choices=("lzmaf", "lzma", "raw")
        ),
        "packing": Option(
            "float",
            0.42,
            "xz compresses a row that shrinks at least to this share of its size and stores other "
            "rows; 1 compresses all rows: two thirds of the bytes, twice the CPU time; later: all "
            "rows are stored, and compressed after the session; auto: while recording if the "
            "machine has room for it, else later",
            minimum=0.0,
            maximum=1.0,
            words=("later", "auto"),
        ),
        "imu": Option("bool", True, "record the built-in IMU as NAME_imu"),
        "extra": Option(
            "list",
            [],
            "further fields of ouster-sdk to record, such as SIGNAL, WINDOW",
            items="str",
        ),
        "lidar_port": Option(
            "int",
            None,
            "UDP port of the lidar; ouster: set on the sensor (default: the sensor's own); pcap: "
            "default from the metadata",
            minimum=1,
            maximum=65535,
        ),
        "imu_port": Option(
            "int", None, "UDP port of the IMU, as lidar_port", minimum=1, maximum=65535
        ),
        "udp_dest": Option(
            "str",
            None,
            "ouster: destination of the sensor's packets, such as a multicast group (default: this "
            "machine)",
        ),
        "profile": Option("str", None, "ouster: the lidar profile, such as RNG15_RFL8_NIR8"),
        "timestamp_mode": Option(
            "str",
            None,
            "ouster: source of the device's time (default: the sensor's present setting)",
            choices=("TIME_FROM_INTERNAL_OSC", "TIME_FROM_SYNC_PULSE_IN", "TIME_FROM_PTP_1588"),
        ),
        "multipurpose_io_mode": Option(
            "str",
            None,
            "ouster: use of the pin MULTIPURPOSE_IO (default: the sensor's present setting)",
            choices=(
                "OFF",
                "INPUT_NMEA_UART",
                "OUTPUT_FROM_INTERNAL_OSC",
                "OUTPUT_FROM_SYNC_PULSE_IN",
                "OUTPUT_FROM_PTP_1588",
                "OUTPUT_FROM_ENCODER_ANGLE",
            ),
        ),
        "settings": Option(
            "map", {}, "ouster: further sensor settings, by Ouster's names (azimuth_window)"
        ),
        "persist": Option(
            "bool",
            False,
            "ouster: store the settings in the sensor whenever they are changed, so that a power "
            "cycle keeps them",
        ),
        "socket_buffer_mb": Option(
            "float", 32.0, "ouster, udp: receive buffer of each socket [MB]", minimum=0.1
        ),
        "timeout_s": Option(
            "float", 5.0, "ouster, udp: silence after which the sensor is lost [s]", minimum=0.5
        ),
        "serial": Option("int", None, "osf: serial number, where the file holds several sensors"),
        "mode": Option(
            "str",
            None,
            "columns x Hz; default of sim without metadata: 1024x10",
            choices=("512x10", "512x20", "1024x10", "1024x20", "2048x10", "4096x5"),
        ),
        "beams": Option("int", 128, "sim without metadata: number of beams", choices=(32, 64, 128)),
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
    stream_suffixes = ("_imu",)
    live_schemes = frozenset({"ouster", "udp", *TOPIC_SCHEMES})
    schemes = {
        "ouster": "a sensor on the network, //HOST: configured over its HTTP API",
        "udp": "a sensor's packets only, //ADDRESS:PORT of this machine or of a multicast group",
        "sim": "a drive past houses, vehicles, people and poles",
        "pcap": "a network capture, pcap or pcapng",
        "osf": "an OSF file of ouster-sdk",
        "bag": "PATH[#TOPIC]: packets of Ouster's ROS driver in a ROS 2 bag (MCAP, SQLite)",
        "mcap": "as bag",
        **TOPIC_FORMS,
    }

    _setup: Setup | None = None
    _bag_source: BagSource | None = None
    _topics: PacketTopics | None = None

    def open(self) -> Sequence[StreamSpec]:
        """Open the source; a SourceError names the file and its fault."""
        match self.sensor.scheme:
            case "sim":
                from drivers.ouster.simulated import SimulatedSource

                return self.begin(SimulatedSource(self.sensor))
            case "pcap":
                from drivers.ouster.played import PcapSource

                return self.begin(PcapSource(self.sensor))
            case "osf":
                from drivers.ouster.played import OsfSource

                return self.begin(OsfSource(self.sensor))
            case "bag" | "mcap":
                from drivers.ouster.bags import BagSource

                bag = BagSource(self.sensor)
                specs = self.begin(bag)
                self._bag_source, self.ordered, self.clock_steps = bag, True, bag.clock_steps
                return specs
            case "ros2" | "zenoh":
                from drivers.ouster.topics import TopicSource

                return self.begin(TopicSource(self.sensor, self.join_topics()))
        from drivers.ouster.live import LiveSource, make_setup

        # What the sensor refused is known at the next opening.
        self._setup = self._setup or make_setup(self.sensor)
        live = LiveSource(self.sensor, self._setup)
        specs = self.begin(live)
        self.receives = live.receives
        return specs

    def join_topics(self) -> PacketTopics:
        """Return the connection to the sensor's topics, which outlives `close`.

        Raises:
            SourceError: the address is wrong.
        """
        from drivers.ouster.topics import PacketTopics

        self._topics = self._topics or PacketTopics(self.sensor)
        return self._topics

    @property
    def origin_ns(self) -> int | None:
        """Source stamp at the session's start; None: the first item's stamp."""
        if self.sensor.scheme == "sim":  # the world's start is not the end of a sweep
            from drivers.ouster.model import START_NS

            return START_NS
        return None if self._bag_source is None else self._bag_source.origin_ns
