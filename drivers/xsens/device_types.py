"""Types of simulated MTi devices: identity, outputs, and their highest rates.

Outputs and rates are those of the maker's device library (its base frequencies per data type); an
output that is not listed does not exist on the device, which refuses a configuration with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from drivers.kit.simulated_clock import CLOCK_OPTION
from drivers.world import SEED_OPTION, WORLD_OPTIONS, mounts
from drivers.world.faults import IMU_FAULTS, fault_option
from drivers.xsens.commands import EVERY_MESSAGE, PVT_HZ
from recorder.config.options import Option, OptionTable


@dataclass(frozen=True, slots=True)
class Model:
    """A type of device.

    Attributes:
        product: its product code.
        device_id, firmware, hardware: as in the answers to the commands.
        most_hz: highest rate of measurements in Hz, by data type.
        stamps: data types of time stamps and status.
        pvt_hz: rate at which the device acknowledges GnssPvtData; 0 without a receiver.
    """

    product: str
    device_id: bytes
    firmware: bytes
    hardware: bytes
    most_hz: Mapping[int, int]
    stamps: frozenset[int] = frozenset({0x1020, 0x1060, 0xE020})
    pvt_hz: int = 0

    @property
    def status(self) -> int:
        """The StatusWord of a device that works: self-test, orientation, and GNSS fix."""
        return 0x07 if self.pvt_hz else 0


_ORIENTATIONS = (0x2010, 0x2020, 0x2030)
_POSITIONS = (0x5020, 0x5030, 0x5040, 0xD010)
_GNSS_STAMPS = frozenset({0x1010, 0x1020, 0x1060, 0xE010, 0xE020})


def _with_receiver(
    product: str, device_id: str, firmware: bytes, most_hz: int, pvt_hz: int
) -> Model:
    measured = (*_ORIENTATIONS, 0x4020, 0x4030, 0x8020, *_POSITIONS)
    rates = {**dict.fromkeys(measured, most_hz), 0xC020: 100}
    identity = product, bytes.fromhex(device_id), firmware, bytes([2, 0])
    return Model(*identity, rates, _GNSS_STAMPS, pvt_hz)


MODELS: Final[Mapping[str, Model]] = {
    "MTi-300": Model(
        "MTi-300 (emulated)",
        bytes.fromhex("0360E3A7"),
        bytes([1, 9, 2]),
        bytes([2, 0]),
        {**dict.fromkeys((*_ORIENTATIONS, 0x4030), 400), 0x4020: 2000, 0x8020: 2000, 0xC020: 100},
    ),
    "MTi-G-710": _with_receiver("MTi-G-710 (emulated)", "0771E3A7", bytes([1, 9, 2]), 400, PVT_HZ),
    "MTi-7": _with_receiver("MTi-7 (emulated)", "0788E3A7", bytes([1, 12, 0]), 100, EVERY_MESSAGE),
    "MTi-680G": _with_receiver(
        "MTi-680G (emulated)", "0080E3A700680001", bytes([1, 12, 0]), 400, EVERY_MESSAGE
    ),
}

MODEL_OPTION: Final = Option(
    "str",
    "MTi-300",
    "sim: type of the device; all but MTi-300 have positions",
    choices=tuple(MODELS),
)
"""The option ``model`` of a simulated IMU."""

SIM_IMU_OPTIONS: Final[OptionTable] = {
    **WORLD_OPTIONS,
    "clock": CLOCK_OPTION,
    "faults": fault_option(IMU_FAULTS),
    "seed": SEED_OPTION,
    "noise": Option("float", 1.0, "sim: scale of bias and noise", minimum=0.0, maximum=1000.0),
    "model": MODEL_OPTION,
    "mount": mounts.MOUNT_OPTION,
}
