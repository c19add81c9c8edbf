"""Lidars of RoboSense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from drivers.kit.driver import Item, NewStream, SensorConfig, State
from drivers.kit.lidar.calibration import SENSOR, Angles, read_default
from drivers.kit.lidar.cloud_stream import CloudPacketStream
from drivers.kit.lidar.control import Control
from drivers.kit.lidar.decoder import PacketDecoder
from drivers.kit.lidar.family import (
    FAMILY_OPTIONS,
    FAMILY_SCHEMES,
    Family,
    FamilyDriver,
    PacketStream,
)
from drivers.kit.lidar.form import FormChangedError
from drivers.kit.lidar.imu import IMU_SUFFIX, ImuStream
from drivers.kit.source_driver import ItemSource
from drivers.kit.topics.connect import TOPIC_SCHEMES
from drivers.robosense import m1
from drivers.robosense.description import (
    M1_BYTES,
    Description,
    is_description,
    make_description,
    read_description,
    read_m1_description,
)
from drivers.robosense.imu import NUMBER_SPAN, is_imu, read_imu
from drivers.robosense.models import IMU_PORT, MODELS, PACKET_BYTES, WITH_IMU
from drivers.robosense.packets import (
    DUAL_NAMES,
    RobosenseDecoder,
    find_model,
    find_models,
    make_packet,
)
from recorder.codecs.beams import Beams
from recorder.common.errors import FormatError, SourceError
from recorder.config.options import Option, OptionTable


class RobosenseFamily(Family):
    """RoboSense's lidars."""

    zero = "x"
    turns_while_firing = True
    models = (*MODELS, m1.NAME)
    table = Path(__file__).with_name("angles.csv")

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._model = self._returns = ""  # of the stream
        self._told: dict[str, Any] = {}
        self._imu: ImuStream | None = None
        self._live = False

    def is_packet(self, payload: bytes) -> bool:
        wanted = self.sensor.options["model"]
        if m1.is_packet(payload):
            return wanted in (None, m1.NAME)
        return any(wanted in (None, model.name) for model in find_models(payload))

    def make_control(self) -> Control:
        from drivers.robosense.control import RobosenseControl

        return RobosenseControl(self.sensor)

    def side_ports(self) -> Sequence[int]:
        options = self.sensor.options
        imu = options["imu_port"] or (IMU_PORT if options["model"] in WITH_IMU else None)
        return [options["difop_port"], *([imu] if imu and options["imu"] else [])]

    def take_side_packet(self, payload: bytes) -> bool:
        if is_imu(payload):
            return True
        if not is_description(payload):
            return False
        self.device_packet = payload
        return True

    def awaits_side_packets(self) -> bool:
        return not self.device_packet

    def make_simulated(self) -> ItemSource:
        if self.sensor.options["model"] != m1.NAME:
            return super().make_simulated()
        from drivers.kit.lidar.simulated import CloudSource
        from drivers.robosense.simulated import M1Scene

        return CloudSource(self, M1Scene(self.sensor))

    def make_blank_packet(self, model: str) -> bytes:
        """Describe the simulated device, too: its beams are spread evenly."""
        design, name = read_default(self.table, model), MODELS[model]
        angles = np.linspace(*name.view_deg, name.channels), np.zeros(name.channels)
        if design.elevation_deg:
            angles = np.array(design.elevation_deg), np.array(design.azimuth_deg)
        mode = name.single[0][0] if name.single else 0
        self.device_packet = make_description(name, *angles, mode=mode)
        return make_packet(name)

    def make_decoder(self, packet: bytes) -> PacketDecoder:
        model, told = find_model(packet, self.sensor.options["model"]), None
        if len(self.device_packet) == PACKET_BYTES:
            told = read_description(model, self.device_packet)
        returns = told.returns if told is not None else ()
        if wanted := self.sensor.options["returns"]:
            returns = DUAL_NAMES if wanted == 2 else ("single",)
        rate_hz, firing_us = (0.0, ()) if told is None else (told.rate_hz, told.firing_us)
        return RobosenseDecoder(model, packet, returns, rate_hz, firing_us)

    def start(self, packet: bytes, *, live: bool) -> PacketStream:
        self._live = live
        if m1.is_packet(packet):
            self._model = m1.NAME
            return CloudPacketStream(self.sensor, m1.M1Decoder(packet), live=live)
        try:
            return super().start(packet, live=live)
        except FormatError as error:
            raise SourceError(f"{self.sensor.name}: {error}") from None

    def read_sensor_angles(self, decoder: PacketDecoder) -> Angles | None:
        told = self._describe_device(decoder.model)
        if told is None or told.elevation_deg is None or told.azimuth_deg is None:
            return None
        elevation, azimuth = told.elevation_deg.tolist(), told.azimuth_deg.tolist()
        return Angles(tuple(elevation), tuple(azimuth), origin=SENSOR)

    def describe(self, decoder: PacketDecoder, angles: Angles) -> Beams:
        """Add the lens's place and the device's serial number."""
        told = self._describe_device(decoder.model)
        self._model, self._returns = decoder.model, " and ".join(decoder.returns)
        return msgspec.structs.replace(
            super().describe(decoder, angles),
            lens_mm=MODELS[decoder.model].lens_mm,
            serial=told.serial if told is not None else "",
        )

    def _describe_device(self, model: str) -> Description | None:
        if len(self.device_packet) != PACKET_BYTES:
            return None
        return read_description(MODELS[model], self.device_packet)

    def convert_side_packet(self, payload: bytes, t_ns: int) -> Sequence[Item | NewStream] | None:
        if is_imu(payload):
            return list(self._convert_imu(payload, t_ns)) if self.sensor.options["imu"] else ()
        if not is_description(payload):
            return None
        if len(payload) != (M1_BYTES if self._model == m1.NAME else PACKET_BYTES):
            return None
        if self._model == m1.NAME:
            return self._report(read_m1_description(payload), t_ns)
        told = read_description(MODELS[self._model], payload)
        returns = " and ".join(told.returns)
        if not (MODELS[self._model].mode_at or self.sensor.options["returns"]) and (
            returns != self._returns
        ):
            raise FormChangedError(
                f"the device sends the returns {returns} from here on, before {self._returns}"
            )
        return self._report(told.values, t_ns)

    def _convert_imu(self, payload: bytes, t_ns: int) -> Iterator[Item | NewStream]:
        try:
            sample = read_imu(payload)
        except FormatError as error:
            yield State(self.sensor.name, t_ns, {"imu_corrupt": str(error)})
            return
        if self._imu is None:
            cause = "network" if self._live else "device"
            self._imu = ImuStream(self.sensor.name, NUMBER_SPAN, None, cause)
            yield NewStream(self._imu.declare(finite=not self._live))
        yield from self._imu.convert(sample, t_ns)

    def _report(self, values: Mapping[str, Any], t_ns: int) -> Sequence[Item]:
        if values == self._told:
            return ()
        self._told = dict(values)
        return [State(self.sensor.name, t_ns, dict(self._told), lasting=True)]


class RobosenseDriver(FamilyDriver):
    """Records the sweeps of a RoboSense lidar, as measured.

    The channels are those of `drivers.hesai.driver.HesaiDriver`; of an Airy, ``conf`` are the two
    highest bits of the distances, which tell something else.  Angles, return mode and speed are
    those that the device tells of itself (DIFOP, on its own UDP port), the angles unless a file is
    given.  A lasting `State` has its serial number, speed and the state of its clock.

    The IMU of an Airy is the stream NAME_imu once its packets come: ``acc`` f4 [3] m/s^2, ``avel``
    f4 [3] rad/s.

    Columns that are missing are counted by Airy's numbers, else by gaps of the azimuth.

    >>> options = check_options(RobosenseDriver.options, {"model": "RS-32"})
    >>> driver = RobosenseDriver(SensorConfig("lidar", "pcap", "a.pcap", options))
    >>> (spec,) = driver.open()   # SourceError names the file and its fault
    >>> sample = driver.read()
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "model": Option(
            "str",
            None,
            "needed for RS-16 and RS-32, whose packets do not differ; packets of other models are "
            "an error",
            choices=RobosenseFamily.models,
        ),
        "returns": Option(
            "int",
            None,
            "number of returns of a firing (default: as the device tells)",
            minimum=1,
            maximum=2,
        ),
        "lidar_port": Option(
            "int",
            6699,
            "robosense: UDP port of the packets with ranges, as the lidar is set",
            minimum=1,
            maximum=65535,
        ),
        "imu": Option("bool", True, "record the IMU of an Airy as NAME_imu"),
        "imu_port": Option(
            "int",
            None,
            f"robosense, udp: UDP port of the IMU (default: {IMU_PORT} with `model` "
            f"{' or '.join(WITH_IMU)}, else none)",
            minimum=1,
            maximum=65535,
        ),
        "difop_port": Option(
            "int",
            7788,
            "robosense, udp: UDP port of what the lidar tells of itself",
            minimum=1,
            maximum=65535,
        ),
        **FAMILY_OPTIONS,
    }
    schemes: ClassVar[dict[str, str]] = {
        "robosense": "//HOST: packets of the lidar there; it is not set",
        **FAMILY_SCHEMES,
    }
    live_schemes: ClassVar[frozenset[str]] = frozenset({"robosense", "udp", *TOPIC_SCHEMES})
    stream_suffixes: ClassVar[tuple[str, ...]] = (IMU_SUFFIX,)
    family = RobosenseFamily
