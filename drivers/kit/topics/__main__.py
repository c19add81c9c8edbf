"""List of the topics of a middleware: ``python -m drivers.kit.topics SOURCE [SECONDS]``.

SOURCE is ``ros2:DOMAIN``, ``zenoh:[LOCATOR/]DOMAIN`` or ``zenoh:LOCATOR``.  The list is printed as
JSON: name, type, publishers, messages a second, bytes a second, and why a topic cannot be received.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

from drivers.kit.driver import SensorConfig
from drivers.kit.topics.connect import TOPIC_OPTIONS, open_middleware, parse_address
from drivers.kit.topics.middleware import ArrivalQueue, Middleware
from drivers.kit.topics.reception import DEPTH
from recorder.common.errors import DeviceError, RecorderError
from recorder.config.options import check_options

_SECONDS: Final = 5.0
_QUEUE_BYTES: Final = 256_000_000


def list_topics(
    middleware: Middleware, queue: ArrivalQueue, seconds: float
) -> list[dict[str, Any]]:
    """Return the topics that are there, with the rates at which their messages arrive.

    Raises:
        DeviceError: the connection is lost.
    """
    found: dict[str, dict[str, Any]] = {}
    arrived: dict[str, list[tuple[int, int]]] = {}
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        for name, topic in middleware.discover().items():
            about = {"type": topic.type_name, "publishers": len(topic.publishers)}
            if name not in found:
                try:
                    middleware.subscribe(topic, DEPTH)
                except DeviceError as error:
                    about["problem"] = str(error)
            found[name] = {"name": name, **found.get(name, {}), **about}
        for arrival in queue.take(min(0.2, left_s)):
            size = 0 if arrival.data is None else len(arrival.data)
            arrived.setdefault(arrival.topic, []).append((arrival.t_mono_ns, size))
    for name, messages in arrived.items():
        span_s = (messages[-1][0] - messages[0][0]) / 1e9
        rate_hz = (len(messages) - 1) / span_s if span_s > 0 else None
        mean = sum(size for _, size in messages) / len(messages)
        found[name] |= {"rate_hz": rate_hz, "bytes_per_second": mean * (rate_hz or 0.0)}
    return [found[name] for name in sorted(found)]


def main(argv: list[str]) -> int:
    """Print the list; return 0, or the exit code of an error that is printed to stderr."""
    scheme, _, address = argv[0].partition(":")
    try:
        options = check_options(dict(TOPIC_OPTIONS), {}, scheme)
        queue = ArrivalQueue(_QUEUE_BYTES)
        place = parse_address(SensorConfig("draft", scheme, address, options))
        middleware = open_middleware(place, queue, options)
        try:
            topics = list_topics(middleware, queue, float(argv[1]) if argv[1:] else _SECONDS)
        finally:
            middleware.close()
    except RecorderError as error:
        print(str(error).removeprefix("draft: "), file=sys.stderr)
        return error.exit_code
    print(json.dumps(topics))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
