"""Lidars of Velodyne."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import radians, tan
from pathlib import Path
from typing import Any, ClassVar

from drivers.kit.driver import Item, SensorConfig, State
from drivers.kit.lidar.calibration import Angles
from drivers.kit.lidar.control import Control
from drivers.kit.lidar.decoder import PacketDecoder
from drivers.kit.lidar.family import (
    CONTROL_OPTIONS,
    FAMILY_OPTIONS,
    FAMILY_SCHEMES,
    Family,
    FamilyDriver,
)
from drivers.kit.topics.connect import TOPIC_SCHEMES
from drivers.velodyne.models import MODELS
from drivers.velodyne.packets import VelodyneDecoder, find_model, make_packet
from drivers.velodyne.position import parse_position
from recorder.codecs.beams import Beams
from recorder.config.options import Option, OptionTable


class VelodyneFamily(Family):
    """Velodyne's lidars."""

    zero = "x"
    turns_while_firing = True
    models = tuple(MODELS)
    table = Path(__file__).with_name("angles.csv")

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._position: dict[str, Any] = {}  # as the last position packet had it

    def make_blank_packet(self, model: str) -> bytes:
        return make_packet(MODELS[model])

    def make_decoder(self, packet: bytes) -> PacketDecoder:
        told = 0 if self.device is None else self.device.settings.get("rpm", 0)
        rpm = self.sensor.options["rpm"] or told
        return VelodyneDecoder(find_model(packet, self.wanted_model()), packet, rpm / 60)

    def side_ports(self) -> Sequence[int]:
        port = self.sensor.options["position_port"]
        return () if port is None else (port,)

    def take_side_packet(self, payload: bytes) -> bool:
        return parse_position(payload) is not None

    def convert_side_packet(self, payload: bytes, t_ns: int) -> Sequence[Item] | None:
        state = parse_position(payload)
        if state is None or state == self._position:
            return None if state is None else ()
        self._position = state
        return [State(self.sensor.name, t_ns, dict(state), lasting=True)]

    def make_control(self) -> Control:
        from drivers.velodyne.control import VelodyneControl

        return VelodyneControl(self.sensor)

    def describe(self, decoder: PacketDecoder, angles: Angles) -> Beams:
        """Add the beams' rise by the manual where the file has none, and say so."""
        rise_mm = MODELS[decoder.model].rise_mm
        if rise_mm and not angles.rise_mm:
            rises = tuple(-rise_mm * tan(radians(angle)) for angle in angles.elevation_deg)
            angles = replace(angles, rise_mm=rises)
            print(
                f"{self.sensor.name}: the angles have no vertical offsets: the beams rise as the "
                f"manual of the {decoder.model} has it, from {min(rises):.1f} to "
                f"{max(rises):.1f} mm",
                file=sys.stderr,
                flush=True,
            )
        return super().describe(decoder, angles)


class VelodyneDriver(FamilyDriver):
    """Records the sweeps of a Velodyne lidar, as measured.

    The channels are those of `drivers.hesai.driver.HesaiDriver`, without confidences.  The packets
    have no numbers: missing ones are found by gaps of the azimuth, and by the packets' times.  The
    packets tell the time in the hour; the host's time tells the hour.

    A lidar on the network (``velodyne:``) gets the settings of the options and this machine as its
    destination, where they differ; what it does not take on is a DeviceError that names it.  Its
    identity and its settings are recorded, and every ten seconds its motor, laser, GPS state and
    temperatures, where they have changed.

    >>> options = check_options(VelodyneDriver.options, {"calibration": "VLP-16.yaml"})
    >>> driver = VelodyneDriver(SensorConfig("lidar", "pcap", "a.pcap", options))
    >>> (spec,) = driver.open()   # SourceError names the file and its fault
    >>> sample = driver.read()
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "model": Option(
            "str",
            None,
            "model, where packets do not tell it (HDL-64E); packets of others are an error",
            choices=tuple(MODELS),
        ),
        "rpm": Option(
            "int",
            None,
            "speed [rpm], a multiple of 60; velodyne: set on the sensor; the packets of a VLS-128 "
            "with two returns do not tell it",
            minimum=300,
            maximum=1200,
        ),
        "position_port": Option(
            "int",
            None,
            "velodyne, udp: UDP port of the position packets, as the lidar is set (8308); default: "
            "they are not received",
            minimum=1,
            maximum=65535,
        ),
        "return_mode": Option(
            "str",
            None,
            "velodyne: which returns are sent",
            choices=("strongest", "last", "dual"),
        ),
        "phase_deg": Option(
            "float",
            None,
            "velodyne: azimuth of the lidar at the begin of each second [deg] (phase lock)",
            minimum=0,
            maximum=359.99,
        ),
        **CONTROL_OPTIONS,
        **FAMILY_OPTIONS,
    }
    schemes: ClassVar[dict[str, str]] = {
        "velodyne": "a lidar on the network, //HOST[:PORT]: configured over its web interface",
        **FAMILY_SCHEMES,
    }
    live_schemes = frozenset({"velodyne", "udp", *TOPIC_SCHEMES})
    family = VelodyneFamily
