"""Immediate work on all due steps, for a parked vehicle whose daemon is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from recorder.archives.base import available
from recorder.common.clock import Clock
from recorder.config.loading import Config
from recorder.recording.postprocessing.finalizing import Chore, Finalizing, Process
from recorder.recording.root_lock import RootLock
from recorder.recording.supervisor.log_levels import LogLine

_POLL_S = 0.1


def finalize_pending(
    config: Config,
    clock: Clock,
    say: LogLine,
    stop: threading.Event,
    spawn: Callable[[Sequence[str]], Process] = Chore,
) -> dict[str, Any]:
    """Run all due steps of the sessions below the config's root; see `steps`.

    Args:
        config: the config with the root.
        clock: injectable.
        say: logs one line for users.
        stop: ends the work early; the interrupted step is repeated the next time.
        spawn: starts a process; injectable.

    Returns:
        ``{"finished": steps done, "failed": {session: {step: why}}, "queue": [session]}``.

    Raises:
        UsageError: a daemon holds the root and does this work itself.
    """
    root = config.session.root
    lock = RootLock(root)
    lock.take()
    redact = config.path if config.redact else None
    queue = Finalizing(root, clock, say, frozenset(available()), spawn, redact)
    try:
        queue.scan()
        while True:
            queue.turn(None)
            if stop.is_set() or queue.idle:
                break
            clock.wait(stop, _POLL_S)
    finally:
        queue.stop()
        lock.release()
    status = queue.status()
    return {"finished": queue.finished, "failed": status["failed"], "queue": status["queue"]}
