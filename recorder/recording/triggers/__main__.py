"""Process that evaluates triggers during a recording: ``python -m recorder.recording.triggers``.

The daemon starts it.  Standard input has one JSON object: ``socket`` (the control socket) and
``triggers`` (their settings, in the order of the config).  Messages for users go to standard error.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

from recorder.bus.control.client import Client
from recorder.config.settings import TriggerSettings, read_settings
from recorder.recording.triggers.watching import TURN_S, TriggerFollower


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    given = json.loads(sys.stdin.readline() or "null")
    triggers = read_settings(given["triggers"], list[TriggerSettings])

    def connect() -> Client:
        return Client(Path(given["socket"]))

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    watching = TriggerFollower(triggers, connect, report)
    try:
        while True:
            watching.turn(time.monotonic())
            time.sleep(TURN_S)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
