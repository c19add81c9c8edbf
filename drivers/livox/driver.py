"""Lidars of Livox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from drivers.kit.driver import Item, SensorConfig, State
from drivers.kit.lidar.cloud_stream import CloudPacketStream
from drivers.kit.lidar.control import Control
from drivers.kit.lidar.decoder import PacketDecoder
from drivers.kit.lidar.family import (
    CONTROL_OPTIONS,
    FAMILY_OPTIONS,
    FAMILY_SCHEMES,
    Family,
    FamilyDriver,
    PacketStream,
)
from drivers.kit.lidar.imu import IMU_SUFFIX, ImuStream
from drivers.kit.source_driver import ItemSource
from drivers.kit.topics.connect import TOPIC_SCHEMES
from drivers.livox.commands import PUSH, decode_command, decode_values, read_state
from drivers.livox.packets import (
    IMU,
    NUMBER_SPAN,
    LivoxDecoder,
    decode_imu,
    is_packet,
    read_header,
)
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.config.options import Option, OptionTable

_IMU_HZ = 200.0
_OMITTED = ("calibration", "cut_deg")


class LivoxStream(CloudPacketStream):
    """The stream of the points, with that of the IMU beside it.

    Args:
        sensor, decoder, live: see the base class.
        imu: its stream; None: no packets of an IMU have come.
    """

    def __init__(
        self, sensor: SensorConfig, decoder: LivoxDecoder, *, live: bool, imu: ImuStream | None
    ) -> None:
        super().__init__(sensor, decoder, live=live)
        self._imu = imu

    def specs(self, *, finite: bool) -> list[StreamSpec]:
        specs = super().specs(finite=finite)
        return specs if self._imu is None else [*specs, self._imu.declare(finite=finite)]


class LivoxFamily(Family):
    """Livox's lidars."""

    zero = "x"
    turns_while_firing = False
    models = ("Mid-360", "HAP")
    table = Path(__file__)  # points have their positions: there are no angles of beams

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._told: dict[str, Any] = {}
        self._has_imu = False
        self._imu: ImuStream | None = None

    def is_packet(self, payload: bytes) -> bool:
        return is_packet(payload) and read_header(payload)["data_type"] != IMU

    def make_decoder(self, packet: bytes) -> PacketDecoder:
        raise NotImplementedError("Livox's packets have points, no columns")

    def start(self, packet: bytes, *, live: bool) -> PacketStream:
        options = self.sensor.options
        if self._has_imu and options["imu"]:
            cause = "network" if live else "device"
            self._imu = ImuStream(self.sensor.name, NUMBER_SPAN, _IMU_HZ, cause)
        decoder = LivoxDecoder(options["model"], packet, options["rate"])
        return LivoxStream(self.sensor, decoder, live=live, imu=self._imu)

    def make_control(self) -> Control:
        from drivers.livox.control import LivoxControl

        return LivoxControl(self.sensor)

    def side_ports(self) -> Sequence[int]:
        from drivers.livox.control import PORTS

        options, ports = self.sensor.options, PORTS[self.sensor.options["model"]]
        found = [options["state_port"] or ports.state_here]
        return found + ([options["imu_port"] or ports.imu_here] if options["imu"] else [])

    def make_simulated(self) -> ItemSource:
        from drivers.kit.lidar.simulated import CloudSource
        from drivers.livox.simulated import LivoxScene

        return CloudSource(self, LivoxScene(self.sensor))

    def take_side_packet(self, payload: bytes) -> bool:
        of_imu = _is_imu(payload)
        self._has_imu |= of_imu
        return of_imu or _is_push(payload)

    def awaits_side_packets(self) -> bool:
        return bool(self.sensor.options["imu"]) and not self._has_imu

    def convert_side_packet(self, payload: bytes, t_ns: int) -> Sequence[Item] | None:
        if _is_imu(payload):
            return () if self._imu is None else [*self._imu.convert(decode_imu(payload), t_ns)]
        if not _is_push(payload):
            return None
        try:
            told = read_state(decode_values(decode_command(payload).data))
        except FormatError as error:
            return [State(self.sensor.name, t_ns, {"state_corrupt": str(error)})]
        if told == self._told:
            return ()
        self._told = told
        return [State(self.sensor.name, t_ns, dict(told), lasting=True)]


def _is_imu(payload: bytes) -> bool:
    return is_packet(payload) and bool(read_header(payload)["data_type"] == IMU)


def _is_push(payload: bytes) -> bool:
    try:
        return decode_command(payload).id == PUSH
    except FormatError:
        return False


class LivoxDriver(FamilyDriver):
    """Records a Livox Mid-360 or HAP as the stream NAME, and its IMU as NAME_imu.

    A sample of NAME is a sweep: ``points.bin`` with all points of its packets, also those without a
    return, as the lidar's integers: ``xyz`` i4 mm (or i2 10 mm), or ``depth``, ``theta``, ``phi``,
    by the set data type, with ``reflectivity`` u1, ``tag`` u1 and ``t_offset`` u4 ns after the
    sweep's begin.  A sweep ends where the packets' numbers begin again, or after 1 / `rate`.

    Missing packets are counted by their numbers in a `State` after the sweep (``packets_missing``);
    whole missing sweeps are `Lost`.  NAME_imu has ``acc`` f4 [3] m/s^2 and ``avel`` f4 [3] rad/s.

    >>> options = check_options(LivoxDriver.options, {})
    >>> driver = LivoxDriver(SensorConfig("lidar", "pcap", "a.pcap", options))
    >>> specs = driver.open()   # SourceError names the file and its fault
    >>> item = driver.read()
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "model": Option("str", "Mid-360", "which packets do not tell", choices=LivoxFamily.models),
        "rate": Option("float", 10.0, "sweeps in a second", minimum=1.0, maximum=100.0),
        "imu": Option("bool", True, "record the built-in IMU as NAME_imu"),
        "data_type": Option(
            "str",
            "cartesian",
            "livox: how the lidar sends its points; of cartesian_cm in 10 mm",
            choices=("cartesian", "cartesian_cm", "spherical"),
        ),
        "imu_port": Option(
            "int",
            None,
            "livox, udp: UDP port of the IMU (default: 56401, of a HAP 58000)",
            minimum=1,
            maximum=65535,
        ),
        "state_port": Option(
            "int",
            None,
            "livox, udp: UDP port of the lidar's state (default: 56201, of a HAP 56001)",
            minimum=1,
            maximum=65535,
        ),
        **CONTROL_OPTIONS,
        **{name: option for name, option in FAMILY_OPTIONS.items() if name not in _OMITTED},
    }
    schemes: ClassVar[dict[str, str]] = {
        "livox": "//HOST[:PORT]: a lidar on the network, which is set by Livox's commands",
        **FAMILY_SCHEMES,
    }
    live_schemes: ClassVar[frozenset[str]] = frozenset({"livox", "udp", *TOPIC_SCHEMES})
    stream_suffixes: ClassVar[tuple[str, ...]] = (IMU_SUFFIX,)
    family = LivoxFamily
