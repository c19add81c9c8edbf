"""``python -m recorder.live``: the live process, as the daemon starts it.

Standard input has one JSON object: ``socket`` (the control socket), ``live`` (the section of the
config), ``root`` (the folder of sessions) and ``calibration`` (a path, or null).  When the server
listens, one line ``{"url": ...}`` goes to standard output.  Exit codes: 0 after SIGTERM or SIGINT,
2 if it cannot listen.
"""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recorder.contract.config.settings import LiveSettings
from recorder.contract.errors import RecorderError, UsageError


async def serve(given: dict[str, Any]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        given: the object of standard input.

    Raises:
        UsageError: the server cannot listen, or the extra is not installed.
    """
    from recorder.live.access import Access
    from recorder.live.app import make_app
    from recorder.live.audience import Audience
    from recorder.live.daemon_link import LiveBackend
    from recorder.live.hub import Hub
    from recorder.live.tap_source import TapSource

    try:
        from recorder.live.server import listen, make_server, url_of
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the live view needs {error.name}: pip install 'vehicle-recorder[live]'"
        ) from None

    settings = _settings(given["live"])
    socket = listen(settings.bind, settings.port)
    port = socket.getsockname()[1]
    secure = settings.certificate is not None
    access = Access(settings.bind, settings.token, settings.origins, secure=secure, port=port)
    hub, audience = Hub(), Audience(settings.clients)
    executor = ThreadPoolExecutor(2, "draw")
    source = TapSource(hub)
    hub.attach(source)
    backend = LiveBackend(
        hub, source, Path(given["socket"]), Path(given["root"]), audience.tell, executor
    )
    try:
        app = make_app(hub, backend, audience, access, executor)
        server = make_server(app, settings.certificate, settings.key)
        print(json.dumps({"url": url_of(settings.bind, port, secure=secure)}), flush=True)
        await server.serve(sockets=[socket])
    finally:
        await backend.close()
        source.close()
        executor.shutdown(cancel_futures=True)
        socket.close()


def _settings(values: dict[str, Any]) -> LiveSettings:
    paths = {name: Path(values[name]) for name in ("certificate", "key") if values.get(name)}
    return LiveSettings(**{**values, "origins": tuple(values.get("origins", ())), **paths})


def main() -> int:
    """Run the process; its exit code."""
    try:
        given = json.loads(sys.stdin.readline())
        asyncio.run(serve(given))
    except RecorderError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
