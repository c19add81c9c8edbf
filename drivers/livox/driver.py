"""Lidars of Livox."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State
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
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError
from recorder.config.options import Option, OptionTable

IMU_SUFFIX = "_imu"
_IMU_CHANNELS = (
    ChannelSpec("acc", "raw", "f4", (3,), "acceleration, gravity included", "m/s^2"),
    ChannelSpec("avel", "raw", "f4", (3,), "rate of turn", "rad/s"),
)
_OMITTED = ("calibration", "cut_deg")
_RESTART = 2000
"""A number so far from the one before is of an IMU that has restarted, or of a late packet."""


class LivoxStream(CloudPacketStream):
    """The stream of the points, with that of the IMU beside it.

    Args:
        sensor, decoder, live: see the base class.
        imu: packets of the IMU have come.
    """

    def __init__(
        self, sensor: SensorConfig, decoder: LivoxDecoder, *, live: bool, imu: bool
    ) -> None:
        super().__init__(sensor, decoder, live=live)
        self._imu = imu

    def specs(self, *, finite: bool) -> list[StreamSpec]:
        specs = super().specs(finite=finite)
        if self._imu:
            specs.append(
                StreamSpec(
                    self._sensor.name + IMU_SUFFIX,
                    _IMU_CHANNELS,
                    rate_hz=200.0,
                    device_clock=True,
                    finite=finite,
                    description="IMU of the lidar",
                )
            )
        return specs


class LivoxFamily(Family):
    """Livox's lidars."""

    zero = "x"
    turns_while_firing = False
    models = ("Mid-360", "HAP")
    table = Path(__file__)  # points have their positions: there are no angles of beams

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._told: dict[str, Any] = {}
        self._has_imu, self._cause = False, "device"
        self._imu_ns = 0
        self._imu_number: int | None = None

    def is_packet(self, payload: bytes) -> bool:
        return is_packet(payload) and read_header(payload)["data_type"] != IMU

    def make_decoder(self, packet: bytes) -> PacketDecoder:
        raise NotImplementedError("Livox's packets have points, no columns")

    def start(self, packet: bytes, *, live: bool) -> PacketStream:
        options = self.sensor.options
        self._has_imu &= options["imu"]
        self._cause = "network" if live else "device"
        decoder = LivoxDecoder(options["model"], packet, options["rate"])
        return LivoxStream(self.sensor, decoder, live=live, imu=self._has_imu)

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
            return list(self._convert_imu(payload, t_ns))
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

    def _convert_imu(self, payload: bytes, t_ns: int) -> Iterator[Item]:
        if not self._has_imu:
            return
        name = self.sensor.name + IMU_SUFFIX
        device_ns, acc, avel = decode_imu(payload)
        self._imu_ns = t_ns = max(self._imu_ns, t_ns)
        number, before = int(read_header(payload)["number"]), self._imu_number
        step = 1 if before is None else (number - before) % NUMBER_SPAN
        self._imu_number = number
        if not step:  # it came twice
            return
        if 1 < step < _RESTART:
            yield Lost(name, t_ns, self._cause, step - 1)
        yield Sample(
            name,
            np.array([t_ns], np.int64),
            {"acc": acc[None], "avel": avel[None]},
            np.array([device_ns], np.int64),
        )


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
