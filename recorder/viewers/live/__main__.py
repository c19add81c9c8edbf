"""Live process that the daemon starts: ``python -m recorder.viewers.live``.

Standard input has one JSON object: ``socket`` (the control socket), ``live`` (the section of the
config), ``root`` (the folder of sessions) and ``calibration`` (a path, or null).  When the server
listens, one line ``{"event": "listening", "url": ...}`` goes to standard output.  Exit codes: 0
after SIGTERM or SIGINT, 2 if it cannot listen.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from recorder.common.errors import RecorderError
from recorder.common.process_setup import end_visibly
from recorder.config.settings import LiveSettings, read_settings
from recorder.viewers.live.backend import Notify, StaticContent
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.serving import serve_backend


async def serve(given: dict[str, Any]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        given: the JSON object that was read from standard input.

    Raises:
        UsageError: the server cannot listen, or the extra is not installed.
    """
    from recorder.viewers.live.daemon_link import LiveBackend
    from recorder.viewers.live.tap_source import TapSource

    def stage(hub: Hub, notify: Notify) -> tuple[LiveBackend, TapSource, StaticContent]:
        source = TapSource(hub)
        socket, root = Path(given["socket"]), Path(given["root"])
        backend = LiveBackend(hub, source, socket, root, notify)
        calibration = Path(given["calibration"]) if given.get("calibration") else None
        return backend, source, StaticContent(calibration, lambda: backend.config)

    def announce(url: str) -> None:
        print(json.dumps({"event": "listening", "url": url}), flush=True)

    await serve_backend(read_settings(given["live"], LiveSettings), stage, announce)


def main() -> int:
    """Run the process and return its exit code."""
    end_visibly()
    try:
        given = json.loads(sys.stdin.readline())
        asyncio.run(serve(given))
    except RecorderError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
