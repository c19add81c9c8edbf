"""Lidars of Hesai."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from drivers.hesai.models import MODELS
from drivers.hesai.packets import HesaiDecoder, find_model
from drivers.kit.driver import SensorConfig
from drivers.kit.lidar.decoder import PacketDecoder
from drivers.kit.lidar.family import FAMILY_OPTIONS, Family, FamilyDriver
from recorder.config.options import Option, OptionTable


class HesaiFamily(Family):
    """Hesai's lidars."""

    zero = "y"
    models = tuple(MODELS)
    table = Path(__file__).with_name("angles.csv")

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self.turns_while_firing = sensor.options["firing_azimuth"]

    def make_decoder(self, packet: bytes) -> PacketDecoder:
        model = find_model(packet, self.sensor.options["model"] or "")
        return HesaiDecoder(model, packet)


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
        **FAMILY_OPTIONS,
    }
    family = HesaiFamily
