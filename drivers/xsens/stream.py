"""The common part of all sources of the Xsens driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers.xsens.commands import Outputs, make_outputs
from drivers.xsens.mtdata2 import Coordinates
from drivers.xsens.positions import PositionRate, Positions, gnss_stream
from drivers.xsens.samples import Batch, Event, Facts, Missing
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ConfigError, DeviceError, ProtocolError


def choose_outputs(sensor: SensorConfig) -> Outputs:
    """Return the output configuration for the options; ConfigError names the option."""
    options = sensor.options
    frame = Coordinates[options["coordinates"]]
    try:
        return make_outputs(max(1, round(options["rate"])), options["outputs"], frame)
    except ProtocolError as error:
        raise ConfigError(str(error), key=f"{sensor.name}.outputs") from None


def derive_facts(outputs: Outputs, settings: Mapping[str, Any], where: str) -> Facts:
    """Return the stream of an output configuration; DeviceError if it makes no samples."""
    facts = Facts.from_outputs(outputs, settings)
    if facts is None:
        there = ", ".join(map(str, outputs)) or "nothing"
        raise DeviceError(
            f"{where}: the device sends {there}, but not both acceleration and rate of turn"
        )
    return facts


def add_positions(
    sensor: SensorConfig, imu: StreamSpec, rate: PositionRate | None
) -> tuple[list[StreamSpec], Positions | None]:
    """Return the declarations of a device, and the maker of its positions' rows, if any.

    Args:
        sensor: its option ``gnss`` may be off.
        imu: the declaration of the samples.
        rate: of the positions; None without positions.
    """
    if rate is None or not sensor.options["gnss"]:
        return [imu], None
    spec = gnss_stream(sensor.name, rate.hz, imu.finite, imu.settings)
    return [imu, spec], Positions(rate, imu.rate_hz or rate.hz)


def batch_size(sensor: SensorConfig, period_ns: float) -> int:
    """Return the number of samples per batch."""
    return max(1, round(float(sensor.options["batch_ms"]) * 1e6 / period_ns))


def make_item(name: str, event: Event) -> Item:
    """Convert the assembler's event to an item of the kit."""
    match event:
        case Batch():
            return Sample(name + event.suffix, event.t_ns, event.data, event.t_dev_ns)
        case Missing(t_ns, gap):
            return Lost(
                name + event.suffix, t_ns, event.cause, gap.count, gap.estimate, event.detail
            )
        case _:
            return State(name, event.t_ns, event.values)
