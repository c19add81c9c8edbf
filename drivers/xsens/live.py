"""The Xsens driver's source for a device: configuration, reading, host times."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable

from drivers.kit.driver import Item, Lost, SensorConfig, State
from drivers.kit.serial_time import MinDelayClock
from drivers.xsens.commands import (
    USUAL_BAUDRATES,
    Mid,
    Outputs,
    bytes_per_second,
    error_text,
    has_receiver,
    make_gnss_outputs,
)
from drivers.xsens.connection import Mti, Received, RefusedError
from drivers.xsens.mtdata2 import decode_mtdata2
from drivers.xsens.packets import MID_MTDATA2
from drivers.xsens.positions import find_output_rate
from drivers.xsens.sample_clock import TICK_NS, SampleClock
from drivers.xsens.samples import (
    Event,
    Facts,
    MtiAssembler,
    add_positions,
    batch_size,
    choose_outputs,
    derive_facts,
    is_inertial,
    make_item,
)
from recorder.common.errors import DeviceError, RecorderError, SourceError

_IDLE_S = 0.1
_UTC, _PVT = 0x1010, 0x7010
_LEFT_OUT = ((), (_UTC,), (_PVT,), (_UTC, _PVT))  # of a device's positions, in order of preference
_FIRST_NS = 300_000_000  # span of measurements before the first one gets its time


class SerialSource:
    """A device at a serial port, in measurement state.

    Args:
        sensor: its address is the port.
        baudrate: the baud rate at which the device was found before, if any.
        warn: prints a warning for people, once.

    Attributes:
        specs: the streams' declarations.
        baudrate: the baud rate at which the device was found.

    Raises:
        DeviceError: the device does not answer, or its answer is invalid.
        SourceError, ConfigError: the device does not support the options.
    """

    def __init__(
        self, sensor: SensorConfig, baudrate: int | None, warn: Callable[[str], None]
    ) -> None:
        self._sensor = sensor
        self._where = f"{sensor.name}: serial:{sensor.address}"
        self._warn = warn
        wanted = choose_outputs(sensor) if sensor.options["configure"] else None
        self._mti = Mti(sensor.address, self._where, sensor.options["low_latency"])
        try:
            self._begin(baudrate, wanted)
        except BaseException:
            self._mti.close()
            raise

    def _begin(self, baudrate: int | None, wanted: Outputs | None) -> None:
        """Find the device, configure its outputs, and examine its first messages."""
        mti, options = self._mti, self._sensor.options
        given = options["baudrate"]
        # The baud rate of the last opening is the most likely one.
        usual = (
            [given] if given else dict.fromkeys([baudrate or USUAL_BAUDRATES[0], *USUAL_BAUDRATES])
        )
        mti.find(list(usual))
        self.baudrate = mti.baudrate
        identity = mti.identify()
        try:
            outputs = mti.outputs() if wanted is None else self._configure(wanted, identity.product)
        except RefusedError as error:
            raise RefusedError(f"{error}; {identity} may lack an output of `outputs`") from None
        reported = {"device": identity._asdict(), "configured": wanted is not None}
        facts = derive_facts(outputs, reported, self._where)
        self._check(outputs, facts, wanted)
        rate_hz = facts.settings["device_rate_hz"]
        spec = facts.stream(self._sensor.name, rate_hz, finite=False)
        self.specs, positions = add_positions(self._sensor, spec, find_output_rate(outputs))
        period_ns = 1e9 / rate_hz
        self._host = MinDelayClock()
        self._assembler = MtiAssembler(
            facts,
            batch_size(self._sensor, period_ns),
            SampleClock(period_ns, strict=True),
            self._where,
            self._host,
            positions,
        )
        self._latency_ns = round(options["latency_ms"] * 1e6)
        self._timeout_ns = round(options["timeout_s"] * 1e9)
        self._checksums = 0
        self._end: RecorderError | None = None
        self._waiting: list[Received] = []
        self._first_ns = _FIRST_NS
        mti.measure()
        now_ns = self._last_ns = time.monotonic_ns()
        state = {"baudrate": mti.baudrate, "low_latency": mti.low_latency, "device": str(identity)}
        self._items: deque[Item] = deque([State(self._sensor.name, now_ns, state, lasting=True)])
        if options["low_latency"] and not mti.low_latency:
            self._warn(f"no low-latency mode, the port may buffer bytes: {mti.latency_reason}")

    def _configure(self, wanted: Outputs, product: str) -> Outputs:
        """Set the outputs, with as many of a position as the device has and the line carries."""
        options, mti = self._sensor.options, self._mti
        if not options["gnss"] or not has_receiver(product, mti.outputs()):
            return mti.configure(wanted)
        more = make_gnss_outputs(max(1, round(options["rate"])), options["gnss_rate"])
        for without in _LEFT_OUT:  # old firmware and some devices lack UtcTime or GnssPvtData
            asked = tuple(sorted((*wanted, *(o for o in more if o.data_type not in without))))
            if bytes_per_second(asked) <= mti.bytes_per_second:
                with contextlib.suppress(RefusedError):
                    outputs = mti.configure(asked)
                    left_out = [str(o) for o in more if o.data_type in without]
                    if left_out:
                        self._warn(f"without {', '.join(left_out)}: not supported, or too much")
                    return outputs
        self._warn("no positions: the device does not support them, or the line is too slow")
        return mti.configure(wanted)

    def _check(self, outputs: Outputs, facts: Facts, wanted: Outputs | None) -> None:
        """Warn of differences between the device's outputs and the options."""
        rate_hz, asked_hz = facts.settings["device_rate_hz"], float(self._sensor.options["rate"])
        if rate_hz != asked_hz:
            self._warn(f"the device sends {rate_hz:g} samples a second, not {asked_hz:g}")
        there = {output.data_id for output in outputs}
        if missing := [str(o) for o in wanted or () if o.data_id not in there]:
            self._warn(f"the device does not send {', '.join(missing)}")
        need, most = bytes_per_second(outputs), self._mti.bytes_per_second
        if need > most:
            raise SourceError(
                f"{self._where}: {need / 1e3:.1f} kB/s exceed the {most / 1e3:.1f} kB/s of "
                f"{self._mti.baudrate} baud: lower the rate, or set the device's baud rate higher"
            )

    def read(self) -> Item | None:
        if not self._items:
            if self._end is not None:
                raise self._end
            try:
                self._receive()
            except RecorderError as end:
                self._place()
                self._assembler.flush(everything=True)  # samples before the error are valid
                self._end = end
            self._items.extend(map(self._as_item, self._assembler.take()))
        return self._items.popleft() if self._items else None

    def _receive(self) -> None:
        received = self._mti.receive(_IDLE_S)
        for message, began_ns in received:
            if message.mid == Mid.WAKE_UP:
                # Messages after a restart are only read once the configuration has been checked.
                raise DeviceError(f"{self._where}: the device has restarted")
            if message.mid == Mid.ERROR:
                reported = {"device_error": error_text(message.data)}
                self._items.append(State(self._sensor.name, time.monotonic_ns(), reported))
            self._waiting.append((message, began_ns - self._latency_ns))
        if not received or self._waiting[-1][1] - self._waiting[0][1] >= self._first_ns:
            self._place()
        self._assembler.flush(everything=not received)
        if time.monotonic_ns() - self._last_ns > self._timeout_ns:
            seconds = self._timeout_ns / 1e9
            raise DeviceError(f"{self._where}: no sample for {seconds:g} s")

    def _place(self) -> None:
        """Give received messages their times; the first ones together, by the least delayed one."""
        waiting, self._waiting = self._waiting, []
        if self._first_ns and waiting:
            self._first_ns = 0
            for message, arrival_ns in waiting:
                if message.mid != MID_MTDATA2:
                    continue
                values = decode_mtdata2(message.data)
                if is_inertial(values) and values.sample_time_fine is not None:
                    self._host.observe(values.sample_time_fine * TICK_NS, arrival_ns)
        for message, arrival_ns in waiting:
            if self._assembler.add(message, arrival_ns):
                self._last_ns = arrival_ns

    def _as_item(self, event: Event) -> Item:
        item = make_item(self._sensor.name, event)
        if isinstance(item, Lost) and item.cause == "corrupt":
            item.detail["checksum_errors"] = self._mti.bad_checksums - self._checksums
            self._checksums = self._mti.bad_checksums
        return item

    def close(self) -> None:
        self._mti.close()
