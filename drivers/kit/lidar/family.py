"""A vendor's family of lidars: what the kit needs to record any of its models."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np

from drivers.kit.driver import Item, NewStream, SensorConfig
from drivers.kit.lidar.calibration import (
    DEFAULT,
    SENSOR,
    Angles,
    angles_of,
    parse_angles,
    read_angles,
    read_default,
)
from drivers.kit.lidar.control import Control, Device
from drivers.kit.lidar.decoder import PacketDecoder, Packets
from drivers.kit.lidar.form import FormWatch
from drivers.kit.lidar.stream import SweepStream, Times
from drivers.kit.simulated_clock import CLOCK_OPTION
from drivers.kit.source_driver import FindingDriver, ItemSource
from drivers.kit.topics.connect import TOPIC_FORMS, TOPIC_OPTIONS, TOPIC_SCHEMES
from drivers.world import WORLD_OPTIONS
from drivers.world.faults import LIDAR_FAULTS, fault_option
from drivers.world.mounts import MOUNT_OPTION
from recorder.codecs.beams import Beams
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, SourceError
from recorder.config.options import Option, OptionTable

if TYPE_CHECKING:
    from drivers.kit.lidar.bags import BagSource
    from drivers.kit.lidar.live import LiveSource
    from drivers.kit.lidar.topics import TopicSource
    from drivers.kit.topics.source import TopicConnection

FAMILY_OPTIONS: OptionTable = {
    "calibration": Option(
        "path",
        None,
        "file of the channels' angles (default: of the model's design, with a warning)",
    ),
    "cut_deg": Option(
        "float", 0.0, "azimuth at which a sweep begins [deg]", minimum=0.0, maximum=360.0
    ),
    "packets": Option(
        "bool", False, "record the packets, too, from which `recorder redecode` makes sweeps again"
    ),
    "port": Option(
        "int", None, "pcap: UDP port of the packets (default: any)", minimum=1, maximum=65535
    ),
    "interface": Option("str", "", "udp: address of this machine on the link of a multicast group"),
    "socket_buffer_mb": Option(
        "float", 32.0, "udp: receive buffer of the socket [MB]", minimum=0.1, maximum=2000
    ),
    "timeout_s": Option(
        "float", 5.0, "udp: silence after which the sensor is lost [s]", minimum=0.5
    ),
    "seed": Option("int", 0, "sim: seed of the world and the noise", minimum=0),
    **WORLD_OPTIONS,
    "clock": CLOCK_OPTION,
    "faults": fault_option(LIDAR_FAULTS),
    "noise": Option("float", 1.0, "sim: scale of all noise; 0: no noise", minimum=0, maximum=100),
    "mount": MOUNT_OPTION,
    **TOPIC_OPTIONS,
}
"""Options of every family."""

SINGLE_RETURNS = ("first", "last", "strongest")
"""Return modes of one return."""

CONTROL_OPTIONS: OptionTable = {
    "udp_dest": Option(
        "str",
        None,
        "HOST: where the lidar sends its packets, such as a multicast group (default: this "
        "machine, unless it sends to a group or to all)",
    ),
    "lidar_port": Option(
        "int",
        None,
        "HOST: UDP port to which the lidar sends its packets (default: as it is set)",
        minimum=1,
        maximum=65535,
    ),
}
"""Options of families with a control."""

FAMILY_SCHEMES = {
    "udp": "//ADDRESS:PORT of this machine, or of a multicast group: a sensor's packets",
    "pcap": "a network capture, pcap or pcapng",
    "bag": "PATH[#TOPIC]: packets of a ROS driver in a ROS 2 bag (MCAP, SQLite)",
    "mcap": "as bag",
    "sim": "a drive past houses, vehicles, people and poles, seen by any model",
    "packets": "DIR[#SENSOR]: the recorded packets of a session, decoded again",
    **TOPIC_FORMS,
}
"""Sources of every family."""


class PacketStream(Protocol):
    """Stream of one lidar's packets, as `SweepStream`.

    Attributes:
        packet_bytes: length of the packets with ranges.
    """

    @property
    def packet_bytes(self) -> int: ...

    def specs(self, *, finite: bool) -> list[StreamSpec]: ...

    def take(self, packets: Packets, t_ns: Times, epoch_ns: Times) -> Iterator[Item]: ...

    def take_other(self, packet: bytes) -> Iterator[Item]: ...

    def finish(self) -> Iterator[Item]: ...


def convert_payloads(
    family: Family, stream: PacketStream, payloads: Iterable[tuple[int, bytes]], offset_ns: int = 0
) -> Iterator[Item | NewStream]:
    """Convert the payloads of a message in their order.

    Args:
        family: the lidar's family, which knows packets about the device.
        stream: takes the packets with ranges.
        payloads: CLOCK_MONOTONIC or epoch time, ns, and bytes of each.
        offset_ns: the epoch minus these times.

    Raises:
        FormChangedError: as `PacketStream.take`, after all payloads before.
    """
    whole: list[bytes] = []
    times: list[int] = []

    def take() -> Iterator[Item]:
        if whole:
            packets = np.frombuffer(b"".join(whole), np.uint8).reshape(len(whole), -1)
            stamps = np.array(times, np.int64)
            whole.clear()
            times.clear()
            yield from stream.take(packets, stamps, stamps + offset_ns)

    for t_ns, payload in payloads:
        if (items := family.convert_side_packet(payload, t_ns)) is not None:
            yield from items
        elif len(payload) == stream.packet_bytes:
            whole.append(payload)
            times.append(t_ns)
        else:
            yield from take()
            yield from stream.take_other(payload)
    yield from take()


class Family(ABC):
    """A vendor's lidars.

    Args:
        sensor: the sensor's entry.
    """

    zero: ClassVar[Literal["x", "y"]]
    """Axis of azimuth 0."""
    turns_while_firing: bool
    """A channel's azimuth is ahead of its column's by its firing time."""
    models: ClassVar[Sequence[str]]
    """Names of the models."""
    table: ClassVar[Path]
    """File with the angles of the models' design."""
    device: Device | None = None
    """The lidar that a control has brought up; None: none."""
    fault: str = ""
    """Why the last datagram was no packet with ranges."""

    device_packet = b""
    """Packet in which the device describes itself; empty while none came."""
    recorded: Beams | None = None
    """Beams of a recording, whose angles hold where the config names no file."""

    def __init__(self, sensor: SensorConfig) -> None:
        self.sensor = sensor

    @abstractmethod
    def make_decoder(self, packet: bytes) -> PacketDecoder:
        """Return the decoder of a device by its first packet.

        Raises:
            FormatError: it is no packet of a known model, or of another one than configured.
        """

    def wanted_model(self) -> str:
        """Return the model of all packets, by the config or the lidar itself; "": any."""
        told = None if self.device is None else self.device.identity.get("model")
        wanted = str(self.sensor.options.get("model") or told)
        return wanted if wanted in self.models else ""

    def make_control(self) -> Control:
        """Return the control of the lidar at the sensor's address.

        Raises:
            SourceError: the vendor's lidars have none.
        """
        raise SourceError(f"{self.sensor.name}: {self.sensor.scheme}: has no control")

    def is_packet(self, payload: bytes) -> bool:
        """Return whether a datagram is a packet with ranges, as the lidar is set to send."""
        try:
            self._check_told(self.make_decoder(payload))
        except FormatError as error:
            self.fault = str(error)
            return False
        return True

    def _check_told(self, decoder: PacketDecoder) -> None:
        """Raise FormatError for packets from before the lidar was set to its return mode."""
        told = None if self.device is None else self.device.settings.get("return_mode")
        if told is not None and (told in SINGLE_RETURNS) != (len(decoder.returns) == 1):
            returns = " and ".join(decoder.returns)
            raise FormatError(
                f"a packet of the returns {returns}, while the lidar is set to {told}"
            )

    def side_ports(self) -> Sequence[int]:
        """Return further UDP ports of this machine, for the packets of `take_side_packet`."""
        return ()

    def take_side_packet(self, payload: bytes) -> bool:  # noqa: ARG002  most devices send no others
        """Take in a packet of the device's state or of its IMU, before the stream is started.

        A device sends such packets beside those with ranges.

        Returns:
            False: it is no such packet.
        """
        return False

    def awaits_side_packets(self) -> bool:
        """Return whether `start` needs a packet for `take_side_packet` that has not come yet."""
        return False

    def convert_side_packet(
        self,
        payload: bytes,  # noqa: ARG002
        t_ns: int,  # noqa: ARG002
    ) -> Sequence[Item | NewStream] | None:
        """Return the items of a packet of the device's state or of its IMU.

        Args:
            payload: the packet.
            t_ns: stamp for the items.

        Returns:
            None: it is no such packet.

        Raises:
            FormChangedError: by it, the packets with ranges have another form from now on.
        """
        return None

    def start(self, packet: bytes, *, live: bool) -> PacketStream:
        """Return the stream of the device whose first packet this is.

        Raises:
            FormatError: see `make_decoder`.
            SourceError: the calibration cannot be used.
        """
        decoder, name = self.make_decoder(packet), self.sensor.name
        path = self.sensor.options["calibration"]
        try:
            if path is not None:
                angles = read_angles(Path(path), decoder.channels, decoder.unit_mm, decoder.model)
            elif self.recorded is not None:
                angles = angles_of(self.recorded)
            else:
                told = self.read_sensor_angles(decoder)
                angles = told if told is not None else read_default(self.table, decoder.model)
        except FormatError as error:
            raise SourceError(f"{name}: calibration: {error}") from None
        if not angles.elevation_deg:
            raise SourceError(
                f"{name}: calibration: a {decoder.model} has no angles of its design; give the "
                "sensor's own file"
            )
        if angles.origin == DEFAULT and self.sensor.scheme != "sim":
            print(
                f"{name}: no calibration is given: points have the angles of the design of a "
                f"{decoder.model}, not of this sensor",
                file=sys.stderr,
                flush=True,
            )
        form = FormWatch(decoder, self.make_decoder)
        beams = self.describe(decoder, angles)
        told_by = self.device_packet
        return SweepStream(self.sensor, decoder, beams, live=live, form=form, device_packet=told_by)

    def make_blank_packet(self, model: str) -> bytes:
        """Return a packet of a model without measurements, such as `start` takes.

        Raises:
            SourceError: no packets of such a lidar are made.
        """
        raise SourceError(f"{self.sensor.name}: sim: a {model} is not simulated")

    def make_simulated(self) -> ItemSource:
        """Return the source of a lidar in the simulated world."""
        from drivers.kit.lidar.simulated import SimulatedSource

        return SimulatedSource(self)

    def read_sensor_angles(self, decoder: PacketDecoder) -> Angles | None:
        """Return the angles that the sensor tells itself; None where it does not."""
        if self.device is None or self.device.angles is None:
            return None
        return parse_angles(
            self.device.angles, SENSOR, decoder.channels, decoder.unit_mm, decoder.model
        )

    def _find_serial(self) -> str:
        if self.device is not None:
            return str(self.device.identity.get("serial", ""))
        return self.recorded.serial if self.recorded is not None else ""

    def describe(self, decoder: PacketDecoder, angles: Angles) -> Beams:
        """Return the description of a device's beams."""
        return Beams(
            vendor=decoder.vendor,
            model=decoder.model,
            serial=self._find_serial(),
            unit_mm=decoder.unit_mm,
            turn=decoder.turn,
            zero=self.zero,
            returns=list(decoder.returns),
            elevation_deg=list(angles.elevation_deg),
            azimuth_deg=list(angles.azimuth_deg),
            firing_ns={str(state): list(row) for state, row in decoder.states.items()},
            column_ns=decoder.column_ns,
            calibration=angles.origin,
            calibration_sha256=angles.sha256,
            rise_mm=list(angles.rise_mm),
            two_point=angles.two_point,
            mirrors=angles.mirrors,
            turns_while_firing=self.turns_while_firing,
        )


class FamilyDriver(FindingDriver):
    """Base of the drivers of a vendor's lidars."""

    family: ClassVar[type[Family]]
    schemes: ClassVar[dict[str, str]] = FAMILY_SCHEMES
    _bag: BagSource | None = None
    _topics: TopicConnection | None = None
    _recorded_ns: int | None = None  # first stamp of the session whose packets are played
    live_schemes: ClassVar[frozenset[str]] = frozenset({"udp", *TOPIC_SCHEMES})
    sim_origin_ns = 1_700_000_000_000_000_000
    kept_bytes = 32 << 20  # some sweeps of 128 channels with two returns

    def open(self) -> Sequence[StreamSpec]:
        """Open the source; a SourceError names the file and its fault."""
        family = self.family(self.sensor)
        if self.sensor.scheme in TOPIC_SCHEMES:
            return self.begin(self._make_topics(family))
        if self.sensor.scheme in self.live_schemes:
            live = self._make_live(family)
            self.receives = live.receives
            return self.begin(live, live.warnings)
        if self.sensor.scheme == "sim":
            return self.begin(family.make_simulated())
        if self.sensor.scheme in ("bag", "mcap"):
            from drivers.kit.lidar.bags import BagSource

            self._bag = bag = BagSource(family)
            specs = self.begin(bag)
            self.ordered, self.clock_steps = True, bag.clock_steps
            return specs
        if self.sensor.scheme == "packets":
            from drivers.kit.lidar.recorded import RecordedPackets

            recorded = RecordedPackets(family)
            specs = self.begin(recorded)
            self.ordered, self._recorded_ns = True, recorded.origin_ns
            return specs
        from drivers.kit.lidar.played import CaptureSource

        return self.begin(CaptureSource(family))

    def _make_topics(self, family: Family) -> TopicSource:
        from drivers.kit.lidar.topics import TopicSource

        return TopicSource(family, self.join_topics())

    def join_topics(self) -> TopicConnection:
        """Return the connection to the lidar's topics, which outlives `close`.

        Raises:
            SourceError: the address is wrong.
        """
        from drivers.kit.lidar.topics import connect_packets

        self._topics = self._topics or connect_packets(self.sensor)
        return self._topics

    def _make_live(self, family: Family) -> LiveSource:
        from drivers.kit.lidar.live import LiveSource
        from drivers.kit.lidar.side_ports import SidePortSource

        control = None if self.sensor.scheme == "udp" else family.make_control()
        if ports := family.side_ports():
            return SidePortSource(family, control, ports)
        return LiveSource(family, control)

    @property
    def origin_ns(self) -> int | None:
        """Source stamp at the session's start; None: the first item's stamp."""
        if self._recorded_ns is not None:
            return self._recorded_ns
        return super().origin_ns if self._bag is None else self._bag.origin_ns
