"""State of the machine's clocks, from the kernel and the time daemon.

A session keeps `clock_state` at its start and every minute.  So the synchronization of the data can
be checked afterwards::

    {"kernel": {"synchronized": true, "offset_ns": -1200, "max_error_ns": 3500000, ...},
     "realtime_minus_monotonic_ns": ..., "daemon": {"name": "chrony", "reference": "GPS", ...},
     "ptp": [{"device": "ptp0", "clock_name": "...", "offset_ns": ...}],
     "pps": [{"device": "pps0", "name": "...", "pulse": 42, "offset_ns": ...}]}
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from recorder.common.clock import SystemClock, read_clocks
from recorder.common.process_setup import start_thread
from recorder.recording.logs import INFO, WARNING, ReportEvent

_STA_UNSYNC = 0x0040  # adjtimex(2)
_STA_NANO = 0x2000
_TIME_ERROR = 5
_PTP_CLASS = Path("/sys/class/ptp")
_PPS_CLASS = Path("/sys/class/pps")
_SECOND_NS = 1_000_000_000
_FRESH_NS = 2 * _SECOND_NS
_CLOCKFD = 3  # clock_gettime(2) on a descriptor: ((~fd) << 3) | 3
_CHRONY_FIELDS: Final = 14
_CHRONY_SECONDS = {"offset_ns": 4, "last_offset_ns": 5, "rms_offset_ns": 6}
_CHRONY_SECONDS |= {"root_delay_ns": 10, "root_dispersion_ns": 11}
_ASK_S = 1.0
_PULSE = re.compile(r"([0-9]{1,10})\.([0-9]{9})#([0-9]{1,10})")

Run = Callable[[Sequence[str]], str | None]
"""Function that runs a command and returns its output; None if it cannot be run or fails."""


class _Timex(ctypes.Structure):
    """``struct timex`` of Linux, for platforms with longs of 8 bytes."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("constant, precision, tolerance", ctypes.c_long * 3),
        ("time", ctypes.c_long * 2),
        ("tick, ppsfreq, jitter", ctypes.c_long * 3),
        ("shift", ctypes.c_int),
        ("stabil, jitcnt, calcnt, errcnt, stbcnt", ctypes.c_long * 5),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    ]


def kernel_clock() -> dict[str, Any] | None:
    """Return the kernel's state of CLOCK_REALTIME (adjtimex(2)); None if the call fails.

    Returns:
        synchronized: whether the clock is disciplined and within its bounds.
        offset_ns: remaining offset to be slewed.
        max_error_ns, estimated_error_ns: from the time daemon; they grow between its updates.
        frequency_ppm: correction of the clock's rate.
        tai_offset_s: TAI minus UTC, 0 if it is not set.
    """
    values = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(values))
    if state < 0:
        return None
    unit_ns = 1 if values.status & _STA_NANO else 1000
    return {
        "synchronized": state != _TIME_ERROR and not values.status & _STA_UNSYNC,
        "offset_ns": values.offset * unit_ns,
        "max_error_ns": values.maxerror * 1000,
        "estimated_error_ns": values.esterror * 1000,
        "frequency_ppm": round(values.freq / 65536, 6),
        "tai_offset_s": values.tai,
    }


def is_synchronized() -> bool:
    """Return whether the kernel reports CLOCK_REALTIME as synchronized."""
    clock = kernel_clock()
    return clock is not None and clock["synchronized"] is True


def time_daemon(run: Run) -> dict[str, Any] | None:
    """Return the state that chrony, ntpd or systemd-timesyncd reports; None without an answer."""
    answers = (ask(run) for ask in (_chrony, _ntpd, _timesyncd))
    return next((answer for answer in answers if answer is not None), None)


def ptp_clocks(folder: Path = _PTP_CLASS) -> list[dict[str, Any]]:
    """Return the PTP hardware clocks with their offsets from CLOCK_REALTIME.

    ``offset_ns`` (PTP minus realtime) is None if the device cannot be opened.  ``bound_ns`` is the
    error bound: half the duration of the comparison.  A clock that runs on TAI is about 37 s ahead.
    """
    clocks = []
    for place in sorted(folder.glob("ptp*")):
        try:
            name = (place / "clock_name").read_text().strip()
        except OSError:
            name = ""
        clock: dict[str, Any] = {"device": place.name, "clock_name": name}
        clocks.append(clock | _ptp_offset(Path("/dev") / place.name))
    return clocks


def pulses(
    folder: Path = _PPS_CLASS, realtime_ns: Callable[[], int] = time.time_ns
) -> list[dict[str, Any]]:
    """Return the sources of pulses per second (PPS), and CLOCK_REALTIME at the latest pulse.

    The kernel's file ``assert`` has the time of the latest pulse and its number
    (Documentation/driver-api/pps.rst).  ``offset_ns`` is CLOCK_REALTIME minus the nearest whole
    second.  For a satellite receiver's pulse, this is the host's clock minus UTC of GPS, as long as
    the host's clock is right within half a second.  It is None without a pulse in the last two
    seconds.
    """
    found = []
    for place in sorted(folder.glob("pps*")):
        source: dict[str, Any] = {"device": place.name, "name": _line(place / "name")}
        stamp = _PULSE.fullmatch(_line(place / "assert"))
        offset_ns = number = None
        if stamp is not None:
            t_ns, number = int(stamp[1]) * _SECOND_NS + int(stamp[2]), int(stamp[3])
            if abs(realtime_ns() - t_ns) <= _FRESH_NS:
                offset_ns = (t_ns + _SECOND_NS // 2) % _SECOND_NS - _SECOND_NS // 2
        found.append(source | {"pulse": number, "offset_ns": offset_ns})
    return found


def _line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def clock_state(run: Run | None = None) -> dict[str, Any]:
    """Return the state shown in the module's example; takes seconds if a time daemon hangs."""
    return {
        "kernel": kernel_clock(),
        "realtime_minus_monotonic_ns": read_clocks(SystemClock()).offset_ns,
        "daemon": time_daemon(run or _run),
        "ptp": ptp_clocks(),
        "pps": pulses(),
    }


def brief(state: dict[str, Any] | None) -> dict[str, Any]:
    """Return the kernel's current state, with the time daemon of an earlier `clock_state`.

    Returns:
        synchronized: None if unknown to the kernel.
        by, reference: names of the time daemon and of its source; None if unknown.
        offset_ns: from the time daemon, else the kernel's remaining offset; None if unknown.
        max_error_ns: the kernel's error bound; None if unknown.
    """
    kernel, daemon = kernel_clock() or {}, (state or {}).get("daemon") or {}
    return {
        "synchronized": kernel.get("synchronized"),
        "by": daemon.get("name"),
        "reference": daemon.get("reference"),
        "offset_ns": daemon.get("offset_ns", kernel.get("offset_ns")),
        "max_error_ns": kernel.get("max_error_ns"),
    }


def summary(state: dict[str, Any]) -> str:
    """Describe a state in one line for users."""
    kernel, daemon = state["kernel"], state["daemon"]
    by = "" if daemon is None else f" by {daemon['name']}"
    if daemon is not None and daemon.get("reference"):
        by += f" ({daemon['reference']})"
    if kernel is None:
        return f"the kernel's clock state is not known{by}"
    if not kernel["synchronized"]:
        return f"not synchronized{by}"
    return f"synchronized{by}, within {kernel['max_error_ns'] / 1e6:.3g} ms at the most"


def _run(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ASK_S,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _chrony(run: Run) -> dict[str, Any] | None:
    """Read ``chronyc -c tracking``: reference id, name, stratum, time, offsets in s, ..., leap."""
    text = run(["chronyc", "-n", "-c", "tracking"])
    fields = (text or "").strip().split(",")
    if len(fields) < _CHRONY_FIELDS:
        return None
    try:
        return {
            "name": "chrony",
            "reference": fields[1] or None,
            "stratum": int(fields[2]),
            **{name: round(float(fields[i]) * 1e9) for name, i in _CHRONY_SECONDS.items()},
            "leap": fields[13],
        }
    except ValueError:
        return None


def _ntpd(run: Run) -> dict[str, Any] | None:
    """Read ``ntpq -c rv``: name=value pairs; offsets, delays and dispersions in ms."""
    text = run(["ntpq", "-n", "-c", "rv"])
    if text is None:
        return None
    pairs = dict(
        part.strip().split("=", 1) for part in text.replace("\n", ",").split(",") if "=" in part
    )
    try:
        return {
            "name": "ntpd",
            "reference": pairs.get("refid"),
            "stratum": int(pairs["stratum"]),
            "offset_ns": round(float(pairs["offset"]) * 1e6),
            "root_delay_ns": round(float(pairs["rootdelay"]) * 1e6),
            "root_dispersion_ns": round(float(pairs["rootdisp"]) * 1e6),
        }
    except (KeyError, ValueError):
        return None


def _timesyncd(run: Run) -> dict[str, Any] | None:
    """Read ``timedatectl show``: whether the clock is synchronized, without an offset."""
    text = run(["timedatectl", "show", "--property=NTP", "--property=NTPSynchronized"])
    pairs = dict(line.split("=", 1) for line in (text or "").splitlines() if "=" in line)
    if pairs.get("NTP") != "yes":
        return None
    return {"name": "systemd-timesyncd", "synchronized": pairs.get("NTPSynchronized") == "yes"}


def _ptp_offset(device: Path) -> dict[str, Any]:
    try:
        fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        try:
            before = time.clock_gettime_ns(time.CLOCK_REALTIME)
            there = time.clock_gettime_ns((~fd << 3) | _CLOCKFD)
            after = time.clock_gettime_ns(time.CLOCK_REALTIME)
        finally:
            os.close(fd)
    except OSError as error:
        return {"offset_ns": None, "bound_ns": None, "problem": error.strerror}
    return {"offset_ns": there - (before + after) // 2, "bound_ns": (after - before + 1) // 2}


EVERY_S = 60.0

Put = Callable[..., None]
"""Function ``put(kind, stream, cause, **values)`` that puts an event into the open session."""


class ClockRecord:
    """Recorder of ``clock`` events with cause ``state``; a thread reads the state, which may hang.

    Every state is put into the session.  It is also reported to users if the synchronization or the
    time daemon has changed.

    ::

        record = ClockRecord()
        while recording:
            record.tick("sessions/a", clock.monotonic_ns(), put, report)

    Args:
        ask: returns the state; may take seconds.
        every_s: seconds between two states.

    Attributes:
        last: the latest state, even without a session; None before the first.
    """

    def __init__(
        self, ask: Callable[[], dict[str, Any]] = clock_state, every_s: float = EVERY_S
    ) -> None:
        self.last: dict[str, Any] | None = None
        self._ask = ask
        self._every_ns = round(every_s * 1e9)
        self._session: str | None = None
        self._due_ns = 0
        self._thread: threading.Thread | None = None
        self._answer: dict[str, Any] | None = None

    def tick(self, session: str | None, now_ns: int, put: Put, report: ReportEvent) -> None:
        """Record a new state, and start the next reading if it is due; call this regularly.

        Args:
            session: the session being recorded; None without one.
            now_ns: CLOCK_MONOTONIC.
            put: called with a state that was read since the last call.
            report: called instead of `put` if the state has changed.
        """
        if self._answer is not None:
            before, self.last, self._answer = self.last, self._answer, None
            values = {"detail": summary(self.last), **self.last}
            if before is not None and _quality(before) != _quality(self.last):
                level = INFO if _quality(self.last)[0] else WARNING
                report(level, "clock", "", "state", **values)
            elif session is not None and session == self._session:
                put("clock", "", "state", **values)
        if session != self._session:
            self._session, self._due_ns = session, now_ns
        if now_ns >= self._due_ns and (self._thread is None or not self._thread.is_alive()):
            self._due_ns = now_ns + self._every_ns
            thread = threading.Thread(target=self._find_out, name="clocks", daemon=True)
            with contextlib.suppress(OSError):  # no memory: retried after the interval
                start_thread(thread)
                self._thread = thread

    def _find_out(self) -> None:
        self._answer = self._ask()

    def close(self) -> None:
        """Wait for a reading in progress, at most five seconds."""
        if self._thread is not None:
            self._thread.join(5.0)


def _quality(state: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """Return the parts of a state that users care about: synchronization and time daemon."""
    return (state["kernel"] or {}).get("synchronized"), (state["daemon"] or {}).get("name")
