"""An emulated Xsens MTi at a pseudo-terminal.

The emulator answers commands as `drivers.xsens.emulator_commands` does.  It sends the simulated
IMU's
measurements, or a recorded log, which begins with the host's first command to measure.  A message
is written when its last byte would have left a real line at the device's baud rate.  A host at
another baud rate receives garbage, and its commands are not understood.

The faults' time begins with the first message that a host requested.  ``loss``, ``corrupt``,
``duplicate``, ``reorder`` hit single messages.  ``stall``: the device measures, but sends nothing.
``reboot``: the device is off for a while, and then starts with WakeUp.  ``unplug``: the port
vanishes, and a new port appears behind the same symbolic link.  ``clock_jump``: SampleTimeFine
jumps.  All faults are counted in messages; ``reboot`` and ``unplug`` include the messages up to the
next measurement.
"""

from __future__ import annotations

import termios
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from drivers.kit.emulator import EmulatedSource, Emulator, SerialPort
from drivers.kit.emulator_faults import Fault
from drivers.world.imu import make_imu
from drivers.xsens.commands import (
    BITS_PER_BYTE,
    PVT_HZ,
    USUAL_BAUDRATES,
    Output,
    Outputs,
    bytes_per_second,
    make_gnss_outputs,
    make_outputs,
    sample_rate,
)
from drivers.xsens.device_types import MODELS
from drivers.xsens.emulator_commands import MtiDevice, MtiState
from drivers.xsens.model import LATENCY_NS, ImuPackets, accept_outputs, encode
from drivers.xsens.mtdata2 import Coordinates, MtData2, decode_mtdata2
from drivers.xsens.packets import MID_MTDATA2, XbusParser
from drivers.xsens.sample_clock import TICK_NS, SampleClock
from drivers.xsens.samples import is_inertial
from recorder.common.errors import SourceError
from recorder.config.settings import SensorEntry

_BLOCK = 64  # messages per generated block
_CHUNK = 1 << 16
_CONFIG_NS = 2_000_000  # interval of reading commands in config state
_MEASURING_NS = 10_000_000  # ... and while it measures
_GARBAGE = bytes((b * 37 + 11) % 251 for b in range(256))
_TICKS = 1 << 32
_STORED = (Output(0x1020), Output(0x1060), Output(0x2010, 100), Output(0xE020))
_SPEEDS = {
    value: int(name[1:])
    for name, value in vars(termios).items()
    if name[0] == "B" and name[1:].isdigit()
}


class SimFeed:
    """The simulated IMU's measurements, endless, from the emulator's time 0.

    Args:
        sensor: a config's entry, its options checked.
        outputs: the device's output configuration, as accepted.

    Attributes:
        due_ns: time of the next message, in the emulator's time.
    """

    def __init__(self, sensor: SensorEntry, outputs: Outputs) -> None:
        self.due_ns: int | None = 0
        self._rate_hz = sample_rate(outputs) or 1
        imu = make_imu(sensor.name, sensor.options, float(self._rate_hz))
        self._packets = ImuPackets(imu, outputs, MODELS[sensor.options["model"]])
        self._next = self._first = 0
        self._made: list[list[MtData2]] = []
        self._rest: deque[MtData2] = deque()  # of the receiver, after the latest sample

    def take(self) -> MtData2:
        """Return the next message."""
        if self._rest:
            values = self._rest.popleft()
            self._go(self._next + (not self._rest))
            return values
        if not self._first <= self._next < self._first + len(self._made):
            self._first = self._next
            self._made = self._packets.groups(self._first, _BLOCK)
        values, *rest = self._made[self._next - self._first]
        self._rest.extend(rest)
        self._go(self._next + (not rest))
        return values

    def skip(self, t_ns: int) -> int:
        """Drop the messages before a time; return their number."""
        before = self._next
        self._rest.clear()
        self._go(max(before, -(-t_ns * self._rate_hz // 1_000_000_000)))
        return self._next - before

    def _go(self, number: int) -> None:
        self._next = number
        self.due_ns = round(number * 1e9 / self._rate_hz)


class LogFeed:
    """The messages of a recorded log, paced by the recorded device's clock.

    Messages that are not samples are sent with the sample before them.

    Args:
        path: of a serial byte log.
        rate_hz: sample rate, for a log without a clock.
        start_ns: when the log begins.
    """

    def __init__(self, path: Path, rate_hz: float, start_ns: int) -> None:
        self._path = path
        self._messages = self._read(rate_hz, start_ns)
        self.due_ns: int | None = None
        self._advance()

    def take(self) -> MtData2:
        values = self._values
        self._advance()
        return values

    def skip(self, t_ns: int) -> int:
        count = 0
        while self.due_ns is not None and self.due_ns < t_ns:
            self._advance()
            count += 1
        return count

    def _advance(self) -> None:
        self.due_ns, self._values = next(self._messages, (None, MtData2()))

    def _read(self, rate_hz: float, t_ns: int) -> Iterator[tuple[int, MtData2]]:
        clock = SampleClock(1e9 / rate_hz)
        last_ns: int | None = None
        for values in _log_values(self._path):
            clock.record_message(values.packet_counter)
            if is_inertial(values):
                placed_ns = clock.place_sample(values.sample_time_fine, 0).t_ns
                t_ns += placed_ns - (placed_ns if last_ns is None else last_ns)
                last_ns = placed_ns
            else:
                clock.record_other(incomplete=False)
            yield t_ns, values


def _log_values(path: Path) -> Iterator[MtData2]:
    """Yield the MTData2 messages of a log; SourceError if it cannot be read."""
    parser = XbusParser()
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                for message in parser.feed(chunk):
                    if message.mid == MID_MTDATA2:
                        yield decode_mtdata2(message.data)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None


def _derive_outputs(path: Path) -> Outputs:
    """Derive the output configuration of a log from its first hundred samples."""
    found = list(islice(filter(is_inertial, _log_values(path)), 100))
    if not found:
        raise SourceError(f"{path}: no MTData2 message with acceleration and rate of turn")
    rate_hz = 100
    ticks = [v.sample_time_fine for v in found if v.sample_time_fine is not None]
    if len(ticks) > 1 and ticks[-1] > ticks[0]:
        rate_hz = round((len(ticks) - 1) * 1e9 / ((ticks[-1] - ticks[0]) * TICK_NS))
    typical = max(found, key=lambda values: len(values.data_ids))
    outputs = [Output(data_id) for data_id in typical.data_ids]
    sent = tuple(o if o.comes_always else o._replace(rate_hz=rate_hz) for o in outputs)
    few = islice(_log_values(path), 200)
    return (*sent, Output(0x7010, PVT_HZ)) if any(v.gnss_pvt for v in few) else sent


class XsensEmulator(Emulator):
    """An MTi of a config's ``sim:`` or ``file:`` entry, at a pty.

    See the module, and `drivers.kit.emulator` for the interface.  The options of the entry
    are the driver's options; ``baudrate`` is the device's (default: the factory setting, or the
    lowest higher rate that carries its messages).
    """

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        super().__init__(sensor, faults, seed)
        self._stalls = [f for f in faults if f.kind == "stall"]
        self._events = deque(
            sorted(
                (f for f in faults if f.kind in ("reboot", "unplug", "clock_jump")),
                key=lambda fault: fault.at_s,
            )
        )
        self._port = SerialPort(sensor.name, "ttyMTi")
        self._model = MODELS[sensor.options["model"]]
        self._feed: SimFeed | LogFeed | None = None
        self._fed: Outputs = ()
        self._line: deque[tuple[int, bytes]] = deque()
        self._epoch_ns: int | None = None
        self._first_ns: int | None = None
        self._absent_until_ns = 0
        self._absence = ""
        self._measuring = False
        self._jump_ns = 0
        self._counter = 0
        self._starts = 0
        self._lost_to = ""

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> EmulatedSource:
        options = self.sensor.options
        reported: dict[str, Any] = {"rate": options["rate"]}
        if self.sensor.scheme == "file":
            stored = sent = _derive_outputs(Path(self.sensor.address))
            reported |= {"configure": False, "rate": float(sample_rate(stored))}
        else:
            frame = Coordinates[options["coordinates"]]
            stored = _STORED
            rate = round(options["rate"])
            sent = make_outputs(rate, options["outputs"], frame)
            if options["gnss"] and self._model.pvt_hz:
                sent += make_gnss_outputs(rate, options["gnss_rate"])
            reported |= {
                name: options[name] for name in ("outputs", "coordinates", "gnss", "gnss_rate")
            }
        baudrate = options.get("baudrate")
        if baudrate is None:
            need = max(USUAL_BAUDRATES[0], bytes_per_second(sent) * BITS_PER_BYTE)
            fit = [rate for rate in USUAL_BAUDRATES if rate >= need]
            baudrate = min(fit, default=max(USUAL_BAUDRATES))
        reported["baudrate"] = baudrate  # saves the host a search of a second or so
        self._device = MtiDevice(baudrate, stored, self._accept, self._model)
        return EmulatedSource(f"serial:{self._port.plug_in()}", reported)

    def stop(self) -> None:
        self._port.remove()

    def step(self, now_ns: int) -> int:
        if self._epoch_ns is None:
            self._epoch_ns = now_ns
        now_ns -= self._epoch_ns
        for at_ns in (self._event_ns(), now_ns):  # first the messages before a fault
            if at_ns is not None and at_ns <= now_ns:
                due_ns = self._step(at_ns)
        return self._epoch_ns + due_ns

    def _event_ns(self) -> int | None:
        """Return when the next fault of the whole device begins."""
        if self._absence or not self._events or self._first_ns is None:
            return None
        return self._first_ns + round(self._events[0].at_s * 1e9) - 1

    def _step(self, now_ns: int) -> int:
        self._fail(now_ns)
        if self._absence:
            return min(self._absent_until_ns, now_ns + _MEASURING_NS)
        self._answer(now_ns)
        if self._device.state is not MtiState.MEASURING:
            self._measuring = False
            due_ns = self._device.due_ns()
            return min(now_ns + _CONFIG_NS, now_ns + _CONFIG_NS if due_ns is None else due_ns)
        self._measure(now_ns)
        self._send(now_ns)
        due = [now_ns + _MEASURING_NS, *(sent_ns for sent_ns, _ in list(self._line)[:1])]
        if self._feed is not None and self._feed.due_ns is not None:
            due.append(self._feed.due_ns)
        return min(due)

    # --- the port -----------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        """Write to the line what the host reads: garbage at another baud rate."""
        if data:
            self._port.write(data if self._is_understood() else data.translate(_GARBAGE))

    def _is_understood(self) -> bool:
        """Return whether host and device have set the same baud rate."""
        ends = self._port.ends
        return (
            ends is not None and _SPEEDS.get(termios.tcgetattr(ends[1])[5]) == self._device.baudrate
        )

    def _answer(self, now_ns: int) -> None:
        if self._port.ends is None:
            return
        data = self._port.read()
        if data and self._is_understood():
            was_config = self._device.state is MtiState.CONFIG
            reply = self._device.receive(data, now_ns)
            if was_config and self._device.state is MtiState.MEASURING and self._first_ns is None:
                self._first_ns = now_ns
            self._write(reply)
        self._write(self._device.tick(now_ns))
        if self._device.starts != self._starts:  # clock and counter restart
            self._starts, self._counter, self._jump_ns = self._device.starts, 0, 0

    # --- measurements -------------------------------------------------------------------------

    def _accept(self, wanted: Sequence[Output]) -> Outputs | None:
        """Return the accepted outputs: a log's are fixed, the simulated device's configurable."""
        if self.sensor.scheme == "file":
            return self._device.outputs
        return accept_outputs(wanted, self._model)

    def _measure(self, now_ns: int) -> None:
        """Put the measurements that are due on the line."""
        feed = self._current_feed(now_ns)
        if feed is None:
            return
        if not self._measuring:  # nothing was measured before
            self._measuring = True
            missed = feed.skip(now_ns)
            if self._lost_to:
                self.injected[self._lost_to] += missed
                self._lost_to = ""
        while feed.due_ns is not None and feed.due_ns <= now_ns:
            t_ns = feed.due_ns
            self.late_ns = now_ns - t_ns
            for packet in self._encode_packets(encode(self._stamp(feed.take(), t_ns)), t_ns):
                free_ns = max(t_ns, self._line[-1][0] if self._line else 0)
                takes_ns = round(len(packet) * 1e9 * BITS_PER_BYTE / self._device.baudrate)
                self._line.append((free_ns + takes_ns, packet))
        self.finished = feed.due_ns is None and not self._line

    def _encode_packets(self, message: bytes, t_ns: int) -> list[bytes]:
        """Return the bytes on the line for a message."""
        if self._first_ns is None:
            return [message]
        t_s = (t_ns - self._first_ns) / 1e9
        if any(stall.is_active(t_s) for stall in self._stalls):
            self.injected["stall"] += 1
            return []
        return self._packet_faults.apply(t_s, message)

    def _current_feed(self, now_ns: int) -> SimFeed | LogFeed | None:
        if self.sensor.scheme == "file":
            if self._feed is None and self._first_ns is not None:
                path, rate_hz = Path(self.sensor.address), float(self.sensor.options["rate"])
                self._feed, self._measuring = LogFeed(path, rate_hz, now_ns), True
        elif self._fed != self._device.outputs:
            self._fed, self._measuring = self._device.outputs, False
            self._feed = SimFeed(self.sensor, self._fed)
        return self._feed

    def _stamp(self, values: MtData2, t_ns: int) -> MtData2:
        """Replace counter and clock by the device's own after a restart or a clock jump."""
        ticks, counter = values.sample_time_fine, values.packet_counter
        if self._device.started_ns is not None:
            t_ns -= LATENCY_NS if values.gnss_pvt is not None else 0
            ticks = (t_ns - self._device.started_ns) // TICK_NS
            counter, self._counter = self._counter, (self._counter + 1) & 0xFFFF
        elif not self._jump_ns:
            return values
        ticks = None if ticks is None else (ticks + self._jump_ns // TICK_NS) % _TICKS
        return replace(values, sample_time_fine=ticks, packet_counter=counter)

    def _send(self, now_ns: int) -> None:
        """Write the messages that have left the line."""
        while self._line and self._line[0][0] <= now_ns:
            self._write(self._line.popleft()[1])

    # --- faults -------------------------------------------------------------------------------

    def _fail(self, now_ns: int) -> None:
        """Begin and end faults of the whole device."""
        if self._absence and now_ns >= self._absent_until_ns:
            if self._port.ends is None:
                self._port.plug_in()
            self._absence = ""
            self._device.power_on(now_ns)
        while self._events and self._first_ns is not None and not self._absence:
            fault = self._events[0]
            at_ns = self._first_ns + round(fault.at_s * 1e9)
            if now_ns < at_ns:
                return
            self._events.popleft()
            if fault.kind == "clock_jump":
                self._jump_ns += round(fault.value * 1e9)
                self.injected["clock_jump"] += 1
                continue
            self._absence = self._lost_to = fault.kind
            self._absent_until_ns = at_ns + round(fault.duration_s * 1e9)
            self.injected[fault.kind] += len(self._line)
            self._line.clear()
            self._measuring = False
            if fault.kind == "unplug":
                self._port.pull()
