"""The process around a driver: ``python -m drivers.NAME schema|check|run``.

- ``schema`` prints the driver's options and source schemes as JSON.
- ``check`` reads one sensor's entry as JSON from stdin, opens its source, prints its streams.
- ``run`` does the same and then records until its parent ends: the main thread reads, encodes and
  offers samples; a second thread (`drivers.kit.writer_link`) owns the sockets.

Reports to the parent go to stdout, one JSON object per line: ``armed``, ``session``, ``ended``,
``fault``, ``stats``.  Messages for people go to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from drivers.kit.driver import (
    INCOMPLETE,
    Driver,
    EndOfSource,
    Item,
    Lost,
    NewStream,
    Sample,
    SensorConfig,
    State,
)
from drivers.kit.encode import Encoder, make_message
from drivers.kit.frozen_check import FrozenCheck
from drivers.kit.read_watchdog import ReadWatchdog
from drivers.kit.sample_batches import keep_samples, last_ns
from drivers.kit.simulated_clock import ClockError, SkewedDriver
from drivers.kit.stamps import Stamps, Timeline
from drivers.kit.topics.connect import TOPIC_SCHEMES
from recorder.bus.messages import CHANGED
from recorder.bus.messages import AnnouncedSession as Session
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock, SignalEvent, SystemClock
from recorder.common.errors import ConfigError, DeviceError, RecorderError, StreamChangedError
from recorder.common.memory import keep_freed_memory
from recorder.common.process_setup import die_with_parent, end_visibly, freeze_gc
from recorder.config.driver_schema import DATASET_SCHEMES, DriverSchema
from recorder.config.options import check_options

BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)

Report = Callable[..., None]


class Device:
    """A driver's device, opened with retries, and reopened after its loss.

    The absence of a device is reported and never ends its driver: the driver retries with
    increasing pauses.

    Args:
        driver: of a live source.
        clock: injectable.
        stop: set when the process is to end.
        report: reports to the parent: ``device`` with ``state`` (absent, lost, present) and
            ``message``.

    Attributes:
        absent: the driver is not open.
        absent_since_ns: CLOCK_MONOTONIC of the first failed opening; None: no opening has failed.
    """

    def __init__(self, driver: Driver, clock: Clock, stop: SignalEvent, report: Report) -> None:
        self._driver = driver
        self._clock = clock
        self._stop = stop
        self._report = report
        self.absent = not driver.played
        self.absent_since_ns: int | None = None

    def find(self, lost: str = "") -> Sequence[StreamSpec] | None:
        """Open the device.  Returns when it is open, or None when the process is to end.

        Args:
            lost: why the device was lost; empty at the driver's start.

        Raises:
            SourceError, ConfigError: errors that no device causes; they are not retried.
        """
        self.absent = True
        reported, tries = lost, 0
        if lost:
            self._report("device", state="lost", message=lost)
        while not self._stop.is_set():
            try:
                specs = self._driver.open()
            except DeviceError as error:
                if self.absent_since_ns is None:
                    self.absent_since_ns = self._clock.monotonic_ns()
                if str(error) != reported and not lost:
                    reported = str(error)
                    self._report("device", state="absent", message=reported)
                wait_s = BACKOFF_S[min(tries, len(BACKOFF_S) - 1)]
                self._clock.wait(self._stop, wait_s)
                tries += 1
                continue
            self.absent = False
            if reported:
                self._report("device", state="present", message="")
            return specs
        return None


UNREAD = "unread"  # cause of the loss of a played source's data behind its fault
_IDLE_S = 0.2
_ARMED_S = 2.0  # kernel buffers hold a device's data during this wait
_LATEST_NS = 1_000_000_000  # longest delay from a measurement to a device's item
_DRAIN_S = 5.0  # time for a driver that is stopped during a session to send its messages


def main(driver_class: type[Driver], argv: list[str] | None = None) -> None:
    """Run a driver module's command line; every driver module calls it on its last line."""
    sys.exit(_main(driver_class, sys.argv[1:] if argv is None else argv))


def _main(driver_class: type[Driver], argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=driver_class.__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("schema", help="print options and source schemes as JSON")
    verbs.add_parser("check", help="open the source given on stdin, print its streams")
    run = verbs.add_parser("run", help="record the source given on stdin")
    run.add_argument("--bus", type=Path, required=True, help="the run's folder")
    run.add_argument("--parent", type=int, required=True, help="parent process to exit with")
    args = parser.parse_args(argv)
    name = ""
    try:
        if args.verb == "schema":
            schema = DriverSchema.of(driver_name(driver_class), driver_class)
            json.dump(schema.to_wire(), sys.stdout)
            return 0
        driver = make_driver(driver_class, json.load(sys.stdin))
        name = driver.sensor.name
        if args.verb == "check":
            streams = [spec.to_wire() for spec in driver.open()]
            driver.close()
            answer = {"streams": streams, "receives": driver.receives, "warnings": driver.warnings}
            json.dump(answer, sys.stdout)
            return 0
        die_with_parent(args.parent)
        end_visibly()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the supervisor decides
        freeze_gc()
        if driver_class.kept_bytes:
            keep_freed_memory(driver_class.kept_bytes)
        return Runner(driver, args.bus, SystemClock()).run()
    except RecorderError as error:
        if args.verb == "run":
            key = error.key if isinstance(error, ConfigError) else ""
            report("fault", message=str(error), exit_code=error.exit_code, key=key)
        else:
            print(error, file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if args.verb == "run":
            text = f"{name}: the driver failed: {type(error).__name__}: {error}"
            report("fault", message=text, exit_code=RecorderError.exit_code)
        raise  # the traceback goes to stderr


def driver_name(driver_class: type[Driver]) -> str:
    """Return the driver's name in a config: its module, or package, without ``drivers.``."""
    module = driver_class.__module__
    if module == "__main__" and (spec := sys.modules["__main__"].__spec__) is not None:
        module = spec.name
    return module.removeprefix("drivers.").removesuffix(".driver")


def make_driver(driver_class: type[Driver], entry: dict[str, Any]) -> Driver:
    """Make the driver for a sensor's entry and check the entry's options again.

    Raises:
        ConfigError: the entry is malformed, or the driver does not support its scheme.
    """
    try:
        sensor = SensorConfig(**entry)
    except TypeError as error:
        raise ConfigError(f"malformed entry of a sensor: {error}") from None
    if sensor.scheme == "session":
        if sensor.path_and_part()[0].is_file():
            from drivers.kit.packed_source import PackedSource

            return PackedSource(sensor)
        from drivers.kit.session_source import SessionSource

        return SessionSource(sensor)
    if sensor.scheme in DATASET_SCHEMES:
        from drivers.kit.dataset_source import DatasetSource

        return DatasetSource(sensor)
    if sensor.scheme not in driver_class.schemes:
        known = ", ".join(f"{s}:" for s in (*driver_class.schemes, "session", *DATASET_SCHEMES))
        raise ConfigError(f"no source {sensor.scheme!r}; the sources are {known}", key=sensor.name)
    checked = check_options(driver_class.options, dict(sensor.options), sensor.name)
    sensor = SensorConfig(**{**entry, "options": checked})
    if (kind := driver_class.recorded_kind) and sensor.scheme == "vrs":
        from drivers.kit.vrs_source import VrsSource

        return VrsSource(sensor, kind)
    if kind and sensor.scheme in ("bag", "mcap"):
        from drivers.kit.mcap_source import McapSource

        return McapSource(sensor, kind)
    if kind and sensor.scheme in TOPIC_SCHEMES:
        from drivers.kit.topics.source import LiveTopicSource

        return LiveTopicSource(sensor, kind)
    driver = driver_class(sensor)
    if sensor.scheme == "sim" and "clock" in checked:
        clock = ClockError.of(sensor.name, checked["clock"], checked["seed"])
        return SkewedDriver(driver, clock) if clock else driver
    return driver


def report(event: str, **values: Any) -> None:
    """Report to the parent with a single write, so that lines of two threads never mix.

    Nothing is reported after the parent has ended: the kernel then ends this process too.
    """
    line = json.dumps({"event": event, **values}, separators=(",", ":")) + "\n"
    with _stdout_lock, contextlib.suppress(BrokenPipeError):
        sys.stdout.write(line)
        sys.stdout.flush()


_stdout_lock = threading.Lock()


class Runner:
    """The loop around one driver, for the lifetime of its process.

    Args:
        driver: not yet opened.
        run_folder: the folder of the writer's socket and of the tap.
        clock: injectable.
    """

    def __init__(self, driver: Driver, run_folder: Path, clock: Clock) -> None:
        self._driver = driver
        self._sensor = driver.sensor
        self._clock = clock
        self._stop = SignalEvent()
        self._run_folder = run_folder
        self._stall = ReadWatchdog()
        self._loop_empty = True
        self._lasting: dict[str, dict[str, Any]] = {}
        self._refused_ns: dict[str, int] = {}  # stamp of the latest sample that the ring refused
        self._reported = ""  # key of the session that has the lasting states
        self._played_ns = 0  # latest time of a played item
        self._misfit = ""  # why the first sample of a played source was not stored
        self._exit_code = 0

    def run(self) -> int:
        """Open, arm, and record every session until the process is asked to end."""
        device = Device(self._driver, self._clock, self._stop, report)
        from drivers.kit.writer_link import WriterLink  # ZeroMQ: `schema` and `check` need none

        declared = self._driver.open() if self._driver.played else device.find()
        if declared is None:
            return 0
        self._specs = specs = {spec.name: spec for spec in declared}
        self._encoders = encoders = {name: Encoder(spec) for name, spec in specs.items()}
        streams = tuple(specs.values())
        link = WriterLink(
            self._sensor.name, streams, self._run_folder, self._clock, report, self._stall
        )
        self._link = link
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        link.start()
        opened = True
        try:
            if not self._driver.played:
                # Before the session is known, no session could take a device's samples.
                link.wait_until_armed(_ARMED_S)
                if device.absent_since_ns is not None:
                    link.report_late_device(device.absent_since_ns)
                self._follow(device)
            while self._driver.played and not self._stop.is_set() and not self._exit_code:
                session = link.wait_for_session(_IDLE_S)
                if session is None:
                    continue
                if not opened:
                    self._open_again()
                opened = True
                try:
                    self._play(session)
                finally:
                    self._driver.close()
                    opened = False
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the process is ending already
            if opened and not device.absent:
                self._driver.close()
            link.drain(_DRAIN_S)
            link.close()
            for encoder in encoders.values():
                encoder.close()
        return self._exit_code

    def stop(self) -> None:
        """End `run` after the pending messages are sent; safe in a signal handler."""
        self._stop.set()
        self._link.interrupt()

    def _play(self, session: Session) -> None:
        """Play a source through a session and its continuations, once or in a loop."""
        begin_ns = session.source_start_ns
        origin_ns = self._driver.origin_ns if begin_ns is UNSET else begin_ns
        timeline = Timeline(self._specs, session.start_ns, origin_ns)
        # A driver restarted during a session resumes at the present time, as a device does.
        resume_ns = session.last_ns + 1 if session.last_ns is not None else session.seam_ns or 0
        if resume_ns and self._sensor.pace == "realtime":
            resume_ns = max(resume_ns, self._clock.monotonic_ns())
        stamps = Stamps(self._specs, self._report_step, late_ns=self._driver.late_ns)
        self._misfit, self._played_ns = "", session.start_ns
        for step_ns, text in self._driver.clock_steps:
            report("event", kind="time", stream="", cause="step", detail=text, step_ns=step_ns)
        reason, detail, kind = "eof", "", ""
        try:
            while self._session_open(session) and reason == "eof":
                over, items = False, list[Item]()
                try:
                    if (read := self._read()) is not None:
                        items += (read,) if self._driver.ordered else stamps.take(read)
                except EndOfSource:
                    over = True
                    items += stamps.flush()
                while self._driver.stream_steps:
                    self._report_step(*self._driver.stream_steps.pop(0))
                for item in items:
                    self._loop_empty = False
                    timeline.place(item)
                    if not self._play_item(item, session, resume_ns):
                        reason = "duration"
                        break
                if over and reason == "eof":
                    if not self._sensor.loop or self._loop_empty:
                        break
                    self._loop_empty = True
                    self._driver.close()
                    self._open_again()
                    timeline.loop()
                    stamps.reset()
            if self._misfit:
                reason, detail, kind = CHANGED, self._misfit, CHANGED
        except RecorderError as error:
            reason, detail = "fault", str(error)
            with contextlib.suppress(RecorderError):  # the link's own error is raised again
                self._lose_rest(session, detail)
        finally:
            self._stall.leave()  # no item is expected any more
        if (count := self._driver.replaced_stamps) > 0:
            text = f"{self._sensor.name}: {count} stamps cannot be true, because they are far from "
            text += "the times of the log: the samples have the times of the log"
            about = {"stream": self._sensor.name, "cause": "replaced", "count": count}
            report("event", kind="time", detail=text, **about)
        self._finish(session, reason, detail, kind)

    def _play_item(self, item: Item, session: Session, resume_ns: int) -> bool:
        """Publish an item when it is due; return False after the end of the session's duration."""
        end_ns = last_ns(item)
        self._played_ns = max(self._played_ns, end_ns)
        if session.until_ns is not None and end_ns >= session.until_ns:
            if not isinstance(item, Sample):
                return True
            if int(item.t_ns[0]) >= session.until_ns:
                return False
            keep_samples(item, item.t_ns < session.until_ns)
        if end_ns < resume_ns:
            return True
        if resume_ns and isinstance(item, Sample):
            keep_samples(item, item.t_ns >= resume_ns)
        if self._sensor.pace == "realtime":
            self._sleep_until(end_ns, session)
        self._publish(item, session)
        return True

    def _lose_rest(self, session: Session, reason: str) -> None:
        """Report that the rest of a played source cannot be read, so that it cannot be counted."""
        for stream in self._specs:
            lost = Lost(stream, self._played_ns, UNREAD, None, detail={"reason": reason})
            self._publish(lost, session)

    def _report_step(self, stream: str, step_ns: int, text: str) -> None:
        """Report a step of the source's clock as an event of the session."""
        detail = f"{stream}: {text}"
        report("event", kind="time", stream=stream, cause="step", detail=detail, step_ns=step_ns)

    def _read(self) -> Item | None:
        """Return the driver's next item; the link's thread detects a call that does not return."""
        waiting = False
        self._stall.enter("read")
        try:
            item = self._driver.read()
            waiting = item is None and self._driver.played
        finally:
            self._stall.leave(waiting=waiting)
        if not isinstance(item, NewStream):
            return item
        spec = item.spec
        if (known := self._specs.get(spec.name)) is None:
            self._specs[spec.name], self._encoders[spec.name] = spec, Encoder(spec)
            self._link.declare(spec)
        elif known.channels != spec.channels:
            raise StreamChangedError(f"{spec.name}: is declared again with other channels")
        return None

    def _open_again(self) -> None:
        self._stall.enter("open")
        try:
            self._driver.open()
        finally:
            self._stall.leave()

    def _follow(self, device: Device) -> None:
        """Read a device, with or without a session, until the process ends."""
        stamps = Stamps(self._specs, self._report_step, self._clock.monotonic_ns)
        frozen = FrozenCheck(self._specs, report)
        while not self._stop.is_set():
            try:
                read = self._read()
                for item in (None,) if read is None else stamps.take(read):
                    frozen.take(item)
                    self._take(item)
            except DeviceError as error:
                if not self._await(device, error):
                    return
            except StreamChangedError as error:  # raised by the driver or the encoder
                self._end_changed(str(error))
                return

    def _take(self, item: Item | None) -> None:
        """Publish a device's item to the session, if there is one."""
        session = self._link.wait_for_session(0)
        if session is not None and session.key != self._reported:
            self._reported = session.key
            for stream, values in self._lasting.items():
                self._publish(State(stream, self._clock.monotonic_ns(), values), session)
            for sample in self._driver.repeat(session.begin_ns):
                self._publish(sample, session)
        if item is None:
            if session is not None and self._is_past(session):
                self._finish(session, "duration", "")
            return
        if isinstance(item, State) and item.lasting:
            self._lasting.setdefault(item.stream, {}).update(item.values)
        measured = not isinstance(item, State) or INCOMPLETE in item.values
        if session is not None and session.seam_ns is None and measured:
            # Measurements and losses before a session's start do not belong to the session.
            if last_ns(item) < session.start_ns:
                session = None
            elif isinstance(item, Sample) and item.count > 1:
                keep_samples(item, item.t_ns >= session.start_ns)
        until_ns = session.until_ns if session is not None else None
        if session is None or until_ns is None or last_ns(item) < until_ns:
            self._publish(item, session)
            return
        if isinstance(item, Sample) and int(item.t_ns[0]) < until_ns:
            keep_samples(item, item.t_ns < until_ns)
            self._publish(item, session)
            if len(self._specs) > 1:
                return  # the other streams may follow with samples from before the end
        self._finish(session, "duration", "")

    def _is_past(self, session: Session) -> bool:
        """Return whether a device can no longer give items from before the session's end."""
        until_ns = session.until_ns
        return until_ns is not None and self._clock.monotonic_ns() > until_ns + _LATEST_NS

    def _await(self, device: Device, error: DeviceError) -> bool:
        """Reopen a lost device; return False if the process is to end."""
        self._link.mark_device_lost()  # before closing, which may take a second or two
        self._driver.close()
        self._publish_device_state({"device": "lost", "reason": str(error)})
        declared = device.find(str(error))
        if declared is None:
            return False
        self._link.mark_device_back()
        self._publish_device_state({"device": "back"})
        if {spec.name: spec.channels for spec in declared} != {
            name: spec.channels for name, spec in self._specs.items()
        }:
            self._end_changed(f"{self._sensor.name}: the device came back with other channels")
            return False
        return True

    def _publish_device_state(self, values: dict[str, Any]) -> None:
        session = self._link.wait_for_session(0)
        for stream in self._specs:
            self._publish(State(stream, self._clock.monotonic_ns(), dict(values)), session)

    def _end_changed(self, detail: str) -> None:
        """End the streams after the device has changed them; a new process declares new streams."""
        self._exit_code = StreamChangedError.exit_code
        session = self._link.wait_for_session(0)
        report("fault", message=detail, exit_code=self._exit_code, kind=CHANGED)
        if session is not None:
            self._link.end(session, CHANGED, detail)

    def _finish(self, session: Session, reason: str, detail: str, kind: str = "") -> None:
        if detail:
            report("fault", message=detail, exit_code=3, kind=kind)
        self._link.end(session, "stopped" if self._stop.is_set() else reason, detail)

    def _session_open(self, session: Session) -> bool:
        return not self._stop.is_set() and self._link.is_open(session)

    def _sleep_until(self, t_ns: int, session: Session) -> None:
        while (wait := t_ns - self._clock.monotonic_ns()) > 0 and self._session_open(session):
            self._clock.wait(self._stop, min(wait / 1e9, _IDLE_S))

    def _publish(self, item: Item, session: Session | None) -> None:
        """Publish an item to its session, or to two sessions where a batch spans their seam."""
        for part, owner in self._link.seam.assign(item, session):
            self._link.enter(owner)
            if not self._publish_part(part, owner):
                self._link.seam.record_refusal(part.stream)

    def _publish_part(self, item: Item, session: Session | None) -> bool:
        """Encode and publish an item; return False where the ring refused it."""
        if session is None and not self._link.wanted(item.stream):
            if isinstance(item, Sample) and item.count:
                self._link.counters.count_unencoded(item.stream, item.count, int(item.t_ns[-1]))
            return True
        if isinstance(item, State) and self._refused_ns.get(item.stream) == item.t_ns:
            values = {key: value for key, value in item.values.items() if key != INCOMPLETE}
            item = replace(item, values=values)  # its sample is counted as lost
        try:
            message = make_message(item, self._encoders)
        except StreamChangedError as error:
            # A device is started again, and declares other streams.  A source is played to its end.
            if not self._driver.played or not isinstance(item, Sample):
                raise
            detail = {"reason": str(error)}
            self._refused_ns[item.stream] = last_ns(item)
            item = Lost(item.stream, last_ns(item), CHANGED, item.count, detail=detail)
            message = make_message(item, self._encoders)
        if isinstance(item, Lost) and item.cause == CHANGED:
            self._misfit = self._misfit or str(item.detail.get("reason", CHANGED))
        if isinstance(item, Sample) and item.count > 1 and not self._link.fits(message.nbytes):
            for first, last in ((0, item.count // 2), (item.count // 2, item.count)):
                half, places = replace(item), np.arange(item.count)
                keep_samples(half, (places >= first) & (places < last))
                self._publish_part(half, session)
            return True
        if session is not None and self._driver.played and self._sensor.pace == "max":
            # A file can wait, unlike a device: at full pace the ring never refuses a sample.
            while not self._link.wait_for_room(item.stream, message.nbytes, _IDLE_S):
                if not self._session_open(session):
                    return True
        taken = self._link.publish(message, session)
        if not taken:
            self._refused_ns[item.stream] = last_ns(item)
        return taken
