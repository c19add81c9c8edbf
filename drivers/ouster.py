"""Ouster lidars and their built-in IMUs: on the network, in captures and OSF files, simulated.

ouster-sdk 1.0 does all decoding, of every lidar and IMU profile that it knows; what is recorded
equals its fields to the last value, staggered (as measured).  Around it, this module sees to what
a recording needs: host stamps, order of time, and the accounts of what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from drivers._devices.ouster import Wanted
from drivers._kit.driver import Driver, EndOfSource, Item, SensorConfig
from drivers._kit.runner import main
from drivers._ouster.live import LiveSource, wanted_settings
from drivers._ouster.played import OsfSource, PcapSource
from drivers._ouster.simulated import SimSource
from drivers.sim.lidar import START_NS
from drivers.sim.world import SCENE_OPTION
from drivers.sim.world.mounts import MOUNT_OPTION
from recorder.contract.config.options import Option
from recorder.contract.streams import StreamSpec


class OusterDriver(Driver):
    """An Ouster lidar as the stream NAME and its IMU as NAME_imu, on one time base.

    NAME, one sample a sweep, arrays [beams, columns]: ``rng`` u2 mm (saturates at 65535),
    ``rng_far`` u4 mm (range minus ``rng``), ``rfl`` u1, ``nir`` u2, of dual returns also ``rng2``,
    ``rng2_far``, ``rfl2``; ``t_col`` u8 ns [columns], the device time of each column.  ``t_ns`` is
    the host stamp of the sweep's last packet, ``t_dev`` the device time of its last column.
    Columns that are missing hold zeros, in ``t_col`` too, and are counted in a `State`
    ``{"columns_missing": n, "frame_id": f}``; sweeps that are missing are `Lost`, cause
    ``device``, told by the gap in the frame ids.  A first or last sweep that the capture has
    only in part is kept.

    NAME_imu: ``acc`` f4[3] m/s^2, ``avel`` f4[3] rad/s, in the IMU's axes, with the stamp of its
    packet.  A packet of several measurements is one batch; items come in order of their last
    stamps.  OSF files hold IMU data of the profile ACCEL32_GYRO32_NMEA only.

    A source without host stamps is timed by the device's clock.  Told as `State` are also a
    restart of the sensor (``sensor_restarted``) and a host clock that went back while the capture
    ran (``host_clock_step_ns``); packets of another size than the metadata says are `Lost`, cause
    ``corrupt``, uncounted.

    A sensor on the network (``ouster:``) is set up over its HTTP API: what the options say, and
    that it sends to this machine; it is reinitialized only where its settings differ.  ``udp:``
    takes the packets alone.  There `t_ns` is the arrival of the packets as the kernel stamped it,
    and a sweep that is missing was lost in the ``network``.  Told as `State` are its settings, the
    metadata's SHA-256, ``time_sync`` (the clock's source and locks, whenever they change),
    ``alert_flags`` and ``alerts``, ``device_clock_step_ns``, the packets of a sweep that came twice
    (``packets_repeated``), damaged (``packets_corrupt``; where its firmware sends a checksum), or
    that the kernel threw away (``packets_dropped_by_kernel``), and, after a restart, the new
    ``metadata``.  If these are of another form, or nothing comes for ``timeout_s``, `read` raises
    DeviceError.  A capped socket buffer is told with the command that raises the limit.

    Of all sources, ``packets_missing`` in a sweep's `State`, and in the detail of a `Lost`, counts
    packets that did not come (or came damaged), and gaps of the IMU are `Lost` of NAME_imu, counted
    by the device's time.

    >>> options = check_options(OusterDriver.options, {"metadata": "a.json"})
    >>> driver = OusterDriver(SensorConfig("lidar", "pcap", "a.pcap", options))
    >>> specs = driver.open()   # SourceError names the file and its fault
    >>> item = driver.read()    # Sample, State or Lost; EndOfSource at the end of a file
    >>> driver.close()          # and open() again, as often as needed

    A file that breaks off, or is damaged, gives what is whole in it and then a SourceError.
    """

    options = {
        "metadata": Option(
            "path", None, "the sensor's JSON; udp: needed; pcap: PATH.json unless given"
        ),
        "compression": Option(
            "str", "lzmaf", "format of the image channels", choices=("lzmaf", "lzma", "raw")
        ),
        "packing": Option(
            "float",
            0.42,
            "xz packs rows that it brings to this share of their size and stores the rest: 1 packs "
            "all, for two thirds of the bytes and twice the CPU time",
            minimum=0.0,
            maximum=1.0,
        ),
        "imu": Option("bool", True, "record the built-in IMU as NAME_imu"),
        "extra": Option(
            "list", [], "more fields of ouster-sdk to record, such as SIGNAL, WINDOW", items="str"
        ),
        "lidar_port": Option(
            "int",
            None,
            "UDP port of the lidar; ouster: the sensor is set to it, and else keeps its own; pcap: "
            "from the metadata unless given",
            minimum=1,
            maximum=65535,
        ),
        "imu_port": Option("int", None, "as lidar_port, of the IMU", minimum=1, maximum=65535),
        "udp_dest": Option(
            "str",
            None,
            "ouster: where the sensor sends to, such as a multicast group; else to this machine",
        ),
        "profile": Option("str", None, "ouster: the lidar's profile, such as RNG15_RFL8_NIR8"),
        "timestamp_mode": Option(
            "str",
            None,
            "ouster: where the device's time comes from; kept as it is unless given",
            choices=("TIME_FROM_INTERNAL_OSC", "TIME_FROM_SYNC_PULSE_IN", "TIME_FROM_PTP_1588"),
        ),
        "multipurpose_io_mode": Option(
            "str",
            None,
            "ouster: use of the pin MULTIPURPOSE_IO; kept as it is unless given",
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
            "map", {}, "ouster: further settings of the sensor by Ouster's names (azimuth_window)"
        ),
        "socket_buffer_mb": Option(
            "float", 32.0, "ouster, udp: receive buffer of each socket [MB]", minimum=0.1
        ),
        "timeout_s": Option(
            "float", 5.0, "ouster, udp: silence after which it is gone [s]", minimum=0.5
        ),
        "serial": Option("int", None, "osf: which sensor, where the file holds several"),
        "mode": Option(
            "str",
            None,
            "columns x Hz; sim without metadata: 1024x10 unless given",
            choices=("512x10", "512x20", "1024x10", "1024x20", "2048x10", "4096x5"),
        ),
        "beams": Option("int", 128, "sim without metadata: number of beams", choices=(32, 64, 128)),
        "seed": Option("int", 0, "sim: of the world and the noise", minimum=0),
        "scene": SCENE_OPTION,
        "noise": Option("float", 1.0, "sim: scale of all noise; 0: none", minimum=0, maximum=100),
        "mount": MOUNT_OPTION,
    }
    stream_suffixes = ("_imu",)
    live_schemes = frozenset({"ouster", "udp"})
    schemes = {
        "ouster": "a sensor on the network, //HOST: set up over its HTTP API",
        "udp": "its packets alone, //ADDRESS:PORT of this machine or a multicast group",
        "sim": "a drive past houses, vehicles, people and poles",
        "pcap": "a network capture, pcap or pcapng",
        "osf": "a file of ouster-sdk",
    }

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._source: _Source | None = None
        self._items: Iterator[Item | None] = iter(())
        self._wanted = wanted_settings(sensor) if not self.played else Wanted({})

    @property
    def origin_ns(self) -> int | None:
        """Simulated: the start of the world, which is not the end of any sweep."""
        return START_NS if self.sensor.scheme == "sim" else None

    def open(self) -> Sequence[StreamSpec]:
        """Open the source; SourceError names the file and what is wrong with it."""
        kinds: dict[str, Callable[[SensorConfig], _Source]] = {
            "pcap": PcapSource,
            "osf": OsfSource,
            "sim": SimSource,
            "ouster": self._live,
            "udp": self._live,
        }
        self._source = source = kinds[self.sensor.scheme](self.sensor)
        try:
            specs = source.open()
        except BaseException:
            self.close()
            raise
        self._items = source.items()
        return specs

    def _live(self, sensor: SensorConfig) -> LiveSource:
        return LiveSource(sensor, self._wanted)

    def read(self) -> Item | None:
        try:
            return next(self._items)
        except StopIteration:
            raise EndOfSource from None

    def close(self) -> None:
        self._items = iter(())
        if self._source is not None:
            self._source.close()
            self._source = None


class _Source(Protocol):
    def open(self) -> Sequence[StreamSpec]: ...

    def items(self) -> Iterator[Item | None]: ...

    def close(self) -> None: ...


if __name__ == "__main__":
    main(OusterDriver)
