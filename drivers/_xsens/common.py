"""What all sources of the Xsens driver share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drivers._kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers._protocols.mtdata2 import Coordinates
from drivers._protocols.mti_stream import Batch, Event, Facts, Missing
from drivers._protocols.xbus_commands import Outputs, wanted_outputs
from recorder.contract.errors import ConfigError, DeviceError, ProtocolError


def wanted_of(sensor: SensorConfig) -> Outputs:
    """The output configuration that the options ask for; ConfigError names the option."""
    options = sensor.options
    frame = Coordinates[options["coordinates"]]
    try:
        return wanted_outputs(max(1, round(options["rate"])), options["outputs"], frame)
    except ProtocolError as error:
        raise ConfigError(str(error), key=f"{sensor.name}.outputs") from None


def facts_of(outputs: Outputs, settings: Mapping[str, Any], where: str) -> Facts:
    """What an output configuration makes; DeviceError where it makes no samples."""
    facts = Facts.of_outputs(outputs, settings)
    if facts is None:
        there = ", ".join(map(str, outputs)) or "nothing"
        raise DeviceError(f"{where}: it sends no acceleration with rate of turn, but {there}")
    return facts


def batch_size(sensor: SensorConfig, period_ns: float) -> int:
    """Samples in one batch."""
    return max(1, round(float(sensor.options["batch_ms"]) * 1e6 / period_ns))


def item_of(name: str, event: Event) -> Item:
    """What the assembler made, as the kit takes it."""
    match event:
        case Batch():
            return Sample(name, event.t_ns, event.data, event.t_dev_ns)
        case Missing(t_ns, gap):
            return Lost(name, t_ns, event.cause, gap.count, gap.estimate, event.detail)
        case _:
            return State(name, event.t_ns, event.values)
