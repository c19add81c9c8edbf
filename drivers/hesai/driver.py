"""Lidars of Hesai."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from drivers.hesai.models import MODELS
from drivers.hesai.packets import HesaiDecoder, find_model, make_packet
from drivers.hesai.ptc_messages import CLOCK_SOURCES, RETURN_MODES
from drivers.kit.driver import SensorConfig
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
from recorder.config.options import Option, OptionTable


class HesaiFamily(Family):
    """Hesai's lidars."""

    zero = "y"
    models = tuple(MODELS)
    table = Path(__file__).with_name("angles.csv")

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self.turns_while_firing = sensor.options["firing_azimuth"]

    def make_blank_packet(self, model: str) -> bytes:
        return make_packet(MODELS[model])

    def make_decoder(self, packet: bytes) -> PacketDecoder:
        return HesaiDecoder(find_model(packet, self.wanted_model()), packet)

    def make_control(self) -> Control:
        from drivers.hesai.control import HesaiControl

        return HesaiControl(self.sensor)


class HesaiDriver(FamilyDriver):
    """Records the sweeps of a Hesai lidar, as measured.

    A sweep has the ranges of each return in the packet's unit (``rng``, ``rng2``, ``rng3`` u2
    [channels, width]), reflectivities (``rfl``, ... u1) and, where they are sent, confidences
    (``conf``, ... u1); ``azimuth`` u4 and ``t_col`` u8 ns of each column, 0 where there is none;
    ``state`` u1 where the firing times differ from column to column.  ``beams.json`` has all that
    makes points of them.  Columns are in the order of their firing.  A sweep's stamp is the arrival
    of its last packet; its device time is that of its last column.

    Columns that are missing by the packets' numbers are counted in a `State` after the sweep
    (``columns_missing``), missing sweeps are `Lost`.  Late packets are put in order.

    A lidar on the network (``hesai:``) gets the settings of the options and this machine as its
    destination, where they differ; what it refuses is a DeviceError that names it.  Its inventory,
    its settings and its own calibration are recorded, and every ten seconds its speed,
    temperatures, clock and PTP state, where they have changed.

    >>> options = check_options(HesaiDriver.options, {"calibration": "angles.csv"})
    >>> driver = HesaiDriver(SensorConfig("lidar", "pcap", "a.pcap", options))
    >>> (spec,) = driver.open()   # SourceError names the file and its fault
    >>> sample = driver.read()
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "model": Option(
            "str",
            None,
            "model, where packets do not tell it; packets of other models are an error",
            choices=tuple(MODELS),
        ),
        "firing_azimuth": Option(
            "bool", False, "add to a channel's azimuth what the lidar turns until it fires"
        ),
        "rpm": Option(
            "int", None, "hesai: speed [rpm], a multiple of 60", minimum=300, maximum=1200
        ),
        "return_mode": Option("str", None, "hesai: which returns are sent", choices=RETURN_MODES),
        "sync_angle": Option(
            "int",
            None,
            "hesai: azimuth of the lidar at the begin of each second [deg] (phase lock)",
            minimum=0,
            maximum=359,
        ),
        "clock_source": Option(
            "str", None, "hesai: which clock the lidar follows", choices=CLOCK_SOURCES
        ),
        "ptp": Option(
            "map",
            {},
            "hesai: PTP's settings: profile (1588v2, 802.1AS, 802.1AS automotive, "
            "802.1AS AUTOSAR), domain, transport (udp, l2), log_intervals (announce, sync, delay "
            "request), tsn",
        ),
        **CONTROL_OPTIONS,
        **FAMILY_OPTIONS,
    }
    schemes: ClassVar[dict[str, str]] = {
        "hesai": "a lidar on the network, //HOST[:PORT]: configured over PTC",
        **FAMILY_SCHEMES,
    }
    live_schemes = frozenset({"hesai", "udp", *TOPIC_SCHEMES})
    family = HesaiFamily
