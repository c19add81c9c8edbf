"""Player of a recorded session, the source of a hub: play, pause, speed, seek, step.

::

    with Player(path) as player:
        hub.attach(player)
        player.start(hub)                         # the only thread that reads and sends samples
        player.seek(player.position.start_ns + 5_000_000_000)
        player.set_speed(2.0)
        position = await asyncio.wrap_future(player.play())

One player has one position, which all its viewers share, as with a projector.  The position alone
determines the shown samples: of each watched stream the newest at or before it.  A viewer that is
slower than the samples misses some; the position never waits, except at the maximum speed.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock, SystemClock
from recorder.common.errors import FormatError, RecorderError, SessionError, UsageError
from recorder.common.files import Closeable
from recorder.session.replay import Pace
from recorder.viewers.live.cursor import Cursor
from recorder.viewers.live.played_session import PlayedSession

if TYPE_CHECKING:
    from recorder.viewers.live.hub import Hub

SPEEDS = (0.1, 16.0)
"""Slowest and fastest speed, recorded seconds per second; `math.inf` is the maximum speed."""
_TICK_NS = 4_000_000  # samples that are due within this time are put together
_LATE_NS = 100_000_000  # what is later than this is left out
_LOOK_NS = 1_000_000_000  # how often a session that is being recorded is read again
_FAULTS = (FormatError, OSError)


@dataclass(frozen=True, slots=True)
class Position:
    """State of a player at one moment.

    Attributes:
        start_ns, end_ns: the session's first and last moment, epoch ns; the end of a session that
            is being recorded moves.
        t_ns: current time, epoch ns.
        playing: the time passes.
        speed: recorded seconds per second; infinite: as fast as samples can be read.
        jumps: number of jumps of the time: seeks, steps, a play from the end.
        recording: the session is being recorded.
    """

    start_ns: int
    end_ns: int
    t_ns: int
    playing: bool = False
    speed: float = 1.0
    jumps: int = 0
    recording: bool = False

    @property
    def ended(self) -> bool:
        """True if the end of a closed session is reached."""
        return self.t_ns >= self.end_ns and not self.recording


class Player(Closeable):
    """Player of one session into a hub; `play` and the other commands are thread-safe.

    A command takes effect within milliseconds; its future then holds the position, or the error.

    Attributes:
        on_change: called in the player's thread after a command, at the end, when something cannot
            be read, and when a session that is being recorded has grown.
        dropped: samples that were left out because they were read too late.

    Raises:
        SessionError: there is no such session, or it has no sample that can be read.
    """

    def __init__(self, path: str | Path, clock: Clock | None = None) -> None:
        self.on_change: list[Callable[[], None]] = []
        self.dropped = 0
        self._session = PlayedSession(Path(path))
        self._sink: Hub | None = None
        self._clock = clock or SystemClock()
        self._cursors: dict[str, Cursor] = {}
        self._wanted: frozenset[str] = frozenset()
        self._commands: deque[tuple[Callable[[], None], Future[Position]]] = deque()
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._look_ns = 0
        played = self._session
        position = Position(
            played.start_ns, played.end_ns, played.begin_ns, recording=played.recording
        )
        # Replaced as a whole, so that every thread reads a state that was true at one moment.
        self._now = Pace(position.t_ns, self._clock.monotonic_ns(), 1.0), position

    @property
    def name(self) -> str:
        """Name of the session."""
        return self._session.name

    @property
    def specs(self) -> Mapping[str, StreamSpec]:
        """Declarations of the streams that can be played."""
        return {name: spec for name, (_, spec) in self._session.streams.items()}

    @property
    def problems(self) -> Mapping[str, str]:
        """Read errors by stream; thread-safe."""
        return dict(self._session.problems)

    @property
    def position(self) -> Position:
        """Current state of the player; thread-safe."""
        pace, position = self._now
        if not position.playing or math.isinf(pace.speed):
            return position
        t_ns = pace.at_ns(self._clock.monotonic_ns())
        return replace(position, t_ns=max(position.start_ns, min(t_ns, position.end_ns)))

    @property
    def blank(self) -> frozenset[str]:
        """Watched streams that have no sample at or before the position; thread-safe."""
        return frozenset(c.name for c in tuple(self._cursors.values()) if c.shown < 0)

    # Commands

    def want(self, streams: frozenset[str]) -> None:
        """Show these streams from now on; read no others."""
        self._wanted = streams
        self._wake.set()

    def play(self) -> Future[Position]:
        """Play on; from the start if the end is reached."""
        return self._command(self._play)

    def pause(self) -> Future[Position]:
        """Pause at the current position."""
        return self._command(self._pause)

    def set_speed(self, speed: float) -> Future[Position]:
        """Set the speed: within `SPEEDS`, or `math.inf`.

        Raises:
            UsageError: the speed is another value.
        """
        if not (SPEEDS[0] <= speed <= SPEEDS[1] or speed == math.inf):
            raise UsageError(f"speed {speed:g}: needs {SPEEDS[0]:g} to {SPEEDS[1]:g}, or infinity")
        return self._command(lambda: self._move(self.position.t_ns, speed=speed))

    def seek(self, t_ns: int) -> Future[Position]:
        """Go to a time, epoch ns (clamped to the session), playing or paused."""
        return self._command(lambda: self._jump(t_ns))

    def step(self, stream: str, by: int = 1) -> Future[Position]:
        """Pause at a sample of a stream: `by` samples after (or before) the one that is shown.

        The first and the last sample are the ends.  The future's error is a SessionError if there
        is no such stream.
        """
        return self._command(lambda: self._step(stream, by))

    # The thread

    def show_on(self, sink: Hub) -> None:
        """Set the sink that receives the samples, and declare the streams to it."""
        self._sink = sink
        self._declare(self._session.streams)

    def start(self, sink: Hub) -> None:
        """Start a thread that plays the session to a sink."""
        self.show_on(sink)
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the session's files; may be called twice."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._session.close()

    def _run(self) -> None:
        try:
            while not self._closed:
                seconds = self.work()
                if seconds is None:
                    self._wake.wait()
                elif seconds > 0:
                    self._clock.wait(self._wake, seconds)
        finally:
            self._closed = True
            while self._commands:
                self._commands.popleft()[1].cancel()

    def work(self) -> float | None:
        """Do all due work, in the player's thread (or in a test's, instead of `start`).

        Returns:
            Seconds until work is due again; None: not before the next command.
        """
        self._wake.clear()
        changed = bool(self._commands)
        while self._commands:
            command, future = self._commands.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                command()
            except RecorderError as error:
                future.set_exception(error)
            else:
                future.set_result(self.position)
        self._follow_viewers()
        now_ns = self._clock.monotonic_ns()
        if self._now[1].recording and now_ns >= self._look_ns:
            self._look_ns = now_ns + _LOOK_NS
            changed |= self._look_again()
        if changed:
            self._report_change()
        if not self._now[1].playing:
            return _LOOK_NS / 1e9 if self._now[1].recording else None
        return self._play_due()

    def _play_due(self) -> float:
        """Send all due samples; return the seconds until more are due."""
        while not self._wake.is_set():
            pace, position = self._now
            now_ns = self._clock.monotonic_ns()
            if position.recording and now_ns >= self._look_ns:
                break
            t_ns, cursor = self._next()
            due_ns = pace.due_ns(t_ns)
            if due_ns > now_ns:
                return max(due_ns - now_ns, _TICK_NS) / 1e9
            if cursor is None:
                return self._arrive()
            try:
                self._play_next(cursor, now_ns)
            except _FAULTS as error:
                self._give_up(cursor, error)
        return 0.0

    def _next(self) -> tuple[int, Cursor | None]:
        """Return the next sample's stamp and its cursor; at the end, the end and None."""
        first: tuple[int, Cursor | None] = self._now[1].end_ns, None
        for cursor in list(self._cursors.values()):
            try:
                t_ns = cursor.next_ns
            except _FAULTS as error:
                self._give_up(cursor, error)
                continue
            if t_ns is not None and (first[1] is None or t_ns < first[0]):
                first = t_ns, cursor
        return first

    def _play_next(self, cursor: Cursor, now_ns: int) -> None:
        pace, position = self._now
        assert cursor.next_ns is not None
        if math.isinf(pace.speed):
            # The time follows the samples.
            self._now = pace, replace(position, t_ns=max(position.t_ns, cursor.next_ns))
            stop = cursor.batch_end(None)
        else:
            until_ns = pace.at_ns(now_ns)
            if now_ns - pace.due_ns(cursor.next_ns) > _LATE_NS:
                self.dropped += cursor.drop_until(until_ns)
            stop = cursor.batch_end(until_ns)
        self._put(cursor, cursor.index, stop)

    def _arrive(self) -> float:
        """Pause at the end, or wait for more of a session that is being recorded."""
        end_ns = self._now[1].end_ns
        if self._now[1].recording:
            self._move(end_ns)
            return max(self._look_ns - self._clock.monotonic_ns(), _TICK_NS) / 1e9
        self._move(end_ns, playing=False)
        self._report_change()
        return 0.0

    # What commands do

    def _play(self) -> None:
        if self.position.ended:
            self._jump(self._now[1].start_ns)
        self._move(self.position.t_ns, playing=True)

    def _pause(self) -> None:
        self._move(self.position.t_ns, playing=False)
        self._show_all()  # what was late, or waited for a batch

    def _jump(self, t_ns: int) -> None:
        self._move(t_ns, jumps=self._now[1].jumps + 1)
        self._show_all()

    def _step(self, name: str, by: int) -> None:
        if name not in self._session.streams:
            raise SessionError(f"no stream {name!r} can be played")
        self._move(self.position.t_ns, playing=False)
        cursor = Cursor(*self._session.streams[name])
        self._place(cursor, self._now[1].t_ns)
        if cursor.length:
            at = min(max(cursor.index - 1 + by, 0), cursor.length - 1)
            self._jump(cursor.read_stamp(at))

    def _move(
        self,
        t_ns: int,
        *,
        playing: bool | None = None,
        speed: float | None = None,
        jumps: int | None = None,
    ) -> None:
        """Continue from this time."""
        _, now = self._now
        made = replace(
            now,
            t_ns=max(now.start_ns, min(t_ns, now.end_ns)),
            playing=now.playing if playing is None else playing,
            speed=now.speed if speed is None else speed,
            jumps=now.jumps if jumps is None else jumps,
        )
        self._now = Pace(made.t_ns, self._clock.monotonic_ns(), made.speed), made

    # Samples

    def _follow_viewers(self) -> None:
        """Show streams that are newly watched; drop the others."""
        wanted = self._wanted & self._session.streams.keys()
        for name in self._cursors.keys() - wanted:
            del self._cursors[name]
        for name in wanted - self._cursors.keys():
            self._cursors[name] = cursor = Cursor(*self._session.streams[name])
            self._show(cursor, self.position.t_ns)

    def _show_all(self) -> None:
        for cursor in list(self._cursors.values()):
            self._show(cursor, self._now[1].t_ns)

    def _show(self, cursor: Cursor, t_ns: int) -> None:
        """Send a stream's newest sample at or before a time, unless it is shown.

        Small samples are sent with those shortly before, which a plot shows as well.
        """
        try:
            self._place(cursor, t_ns)
            newest = cursor.index - 1
            if newest not in (cursor.shown, -1):
                self._put(cursor, cursor.batch_start(newest), newest + 1)
            elif newest < 0 <= cursor.shown and self._sink is not None:
                self._sink.forget(cursor.name)
            cursor.shown = newest
        except _FAULTS as error:
            self._give_up(cursor, error)

    def _place(self, cursor: Cursor, t_ns: int) -> None:
        cursor.place(t_ns)
        if self._now[1].recording and cursor.extend():
            cursor.place(t_ns)

    def _put(self, cursor: Cursor, start: int, stop: int) -> None:
        try:
            message = cursor.message(start, stop)
        except _FAULTS as error:
            self._fail(cursor.name, error)
        else:
            if self._sink is not None:
                self._sink.put(message)
        cursor.mark_sent(stop)

    def _give_up(self, cursor: Cursor, error: Exception) -> None:
        """Stop playing a stream whose times cannot be read."""
        self._fail(cursor.name, error)
        self._cursors.pop(cursor.name, None)
        self._session.streams.pop(cursor.name, None)

    def _fail(self, stream: str, error: Exception) -> None:
        if self._session.fail(stream, error):
            self._report_change()

    def _look_again(self) -> bool:
        """Read the new data of a session that is being recorded; return True if there is some."""
        before = self._now[1]
        new = self._session.look_again()
        self._declare(new)
        if not self._session.gone:
            for cursor in self._cursors.values():
                cursor.extend(also_inside=not self._session.recording)
        pace, position = self._now
        end_ns, recording = self._session.end_ns, self._session.recording
        self._now = pace, replace(position, end_ns=end_ns, recording=recording)
        return bool(new) or before != self._now[1]

    def _declare(self, streams: Iterable[str]) -> None:
        for name in streams:
            if self._sink is not None:
                spec = self._session.streams[name][1]
                self._sink.declare(spec, self._session.sensors.get(name))

    def _command(self, command: Callable[[], None]) -> Future[Position]:
        future: Future[Position] = Future()
        if self._closed:
            future.set_exception(SessionError("the player has ended"))
            return future
        self._commands.append((command, future))
        self._wake.set()
        return future

    def _report_change(self) -> None:
        for call in tuple(self.on_change):
            call()
