"""Sensors that send datagrams (UDP): recorded as they come, from the network or from captures.

The driver knows no sensor's protocol, so it fits lidars of Hesai, Velodyne and Livox, radars that
send detections, and all else that sends datagrams.  The stream has the sensor's name.  A sample is
a datagram: ``payload`` (its bytes), ``source`` (the sender's IP address, u1[16], IPv4 as
::ffff:a.b.c.d), ``source_port`` and ``port`` (the destination's).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from drivers.kit.recorded_source import LATE_NS
from drivers.kit.source_driver import SourceDriver
from drivers.udp.simulated import SIM_DATAGRAM_OPTIONS, SimulatedSource
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable


class UdpDriver(SourceDriver):
    """Records datagrams.

    ``udp:HOST:PORT`` receives at an address of this machine, or in a multicast group, which the
    socket joins on the link of `interface`.  The stamp of a datagram is the kernel's stamp of its
    arrival.  Datagrams that the kernel dropped because the socket's buffer was full are `Lost`,
    cause ``overflow``, before the next datagram that arrived.  Datagrams from others than `sender`
    are not recorded; a `State` counts them (``datagrams_of_others``).  Where the kernel limits the
    buffer, a warning names the command that raises the limit.

    ``file:PATH`` plays the datagrams of a capture (pcap, pcapng) with the capture's stamps.
    Datagrams that the capture holds only in part are `Lost`, cause ``snaplen``, ``fragments`` or
    ``corrupt``.  A truncated or damaged capture gives its complete datagrams and then raises
    SourceError.

    >>> options = check_options(UdpDriver.options, {})
    >>> driver = UdpDriver(SensorConfig("lidar", "udp", "192.168.1.100:2368", options))
    >>> (spec,) = driver.open()  # DeviceError: no datagram arrives
    >>> sample = driver.read()
    >>> sample.data["payload"]   # a list of bytes, one for each datagram
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "interface": Option(
            "str",
            "",
            "udp: address of this machine on the link on which it joins a multicast group: IPv4, "
            "or IPv6 with the link (fe80::1%eth0) (default: by the routes)",
        ),
        "sender": Option(
            "str", None, "udp, file: record only the datagrams from this IP address (default: all)"
        ),
        "port": Option(
            "int",
            None,
            "file: record only the datagrams to this port (default: to all)",
            minimum=1,
            maximum=65535,
        ),
        "socket_buffer_mb": Option(
            "float", 32.0, "udp: receive buffer of the socket [MB]", minimum=0.1, maximum=2000
        ),
        "timeout_s": Option(
            "float",
            5.0,
            "udp: silence after which the sensor is lost [s]; 0: a sensor that sends nothing is "
            "not lost",
            minimum=0,
            maximum=86400,
        ),
        "rate": Option(
            "float",
            None,
            "datagrams per second: of sim (default: 1000); of other sources, the sensor's "
            "nominal rate",
            minimum=0.001,
            maximum=100_000,
        ),
        "to": Option(
            "str",
            None,
            "emulate: HOST:PORT to which `recorder emulate` sends the datagrams (default: a free "
            "port of this machine)",
        ),
        **SIM_DATAGRAM_OPTIONS,
    }
    schemes: ClassVar[dict[str, str]] = {
        "udp": "HOST:PORT of this machine, or of a multicast group",
        "file": "a network capture, pcap or pcapng",
        "sim": "a sender of numbered datagrams with the simulated vehicle's position, endless",
    }
    live_schemes: ClassVar[frozenset[str]] = frozenset({"udp"})
    sim_origin_ns = 0  # start of the simulated sender

    def open(self) -> Sequence[StreamSpec]:
        """Open the source.

        Raises:
            ConfigError: `sender` is not an IP address.
            SourceError: the address has a wrong form; the file is missing, is no capture, or has no
                datagram to record.
            DeviceError: the address cannot be bound, or no datagram arrives.
        """
        self.close()
        self.late_ns = LATE_NS if self.sensor.scheme == "file" else 0
        match self.sensor.scheme:
            case "sim":
                return self.begin(SimulatedSource(self.sensor))
            case "udp":
                from drivers.udp.live import LiveSource

                live = LiveSource(self.sensor)
                self.receives = live.receives
                return self.begin(live, live.warnings)
            case _:
                from drivers.udp.played import CaptureSource

                return self.begin(CaptureSource(self.sensor))
