"""Publisher of samples on Zenoh: ``python zenoh_feed.py ENDPOINT FOLDER [listen]``.

``FOLDER/NAME.json`` has ``topic``, ``schema``, ``rate_hz`` and ``sizes``; ``FOLDER/NAME.bin`` has
the samples, one after another.  They are published once, or in turns until ``count`` are.  The
program prints ``ready`` when it is connected, or when others may connect, and publishes
single bytes on all topics until it reads a line, so that a subscriber discovers the topics.  Then
it publishes every sample when it is due, prints ``done``, and continues with single bytes until its
input ends: edgefirst-recorder checks whether to end only when a message arrives.
"""

import json
import mmap
import select
import sys
import time
from pathlib import Path

import zenoh

_WARM_S = 0.02


def main() -> None:
    endpoint, folder, *listens = sys.argv[1:]
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"' if listens else '"client"')
    place = "listen/endpoints" if listens else "connect/endpoints"
    config.insert_json5(place, json.dumps([endpoint]))
    config.insert_json5("scouting/multicast/enabled", "false")
    with zenoh.open(config) as session:
        streams = [Stream(session, path) for path in sorted(Path(folder).glob("*.json"))]
        print("ready", flush=True)
        warm(streams)
        begin_s = time.monotonic()
        while any(streams):
            stream = min((s for s in streams if s), key=lambda s: s.due_s)
            if (wait_s := begin_s + stream.due_s - time.monotonic()) > 0:
                time.sleep(wait_s)
            stream.put()
        print("done", flush=True)
        warm(streams)


class Stream:
    """Topic with its unpublished samples."""

    def __init__(self, session: zenoh.Session, path: Path) -> None:
        about = json.loads(path.read_text())
        with path.with_suffix(".bin").open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._sizes: list[int] = about["sizes"]
        self._count: int = about.get("count", len(self._sizes))
        self._rate_hz: float = about["rate_hz"]
        self._publisher = session.declare_publisher(
            about["topic"],
            encoding=zenoh.Encoding("application/cdr").with_schema(about["schema"]),
            congestion_control=zenoh.CongestionControl.BLOCK,
        )
        self._index = self._at = 0

    def __bool__(self) -> bool:
        return self._index < self._count

    @property
    def due_s(self) -> float:
        """Time at which the next sample is due, in seconds from the beginning."""
        return self._index / self._rate_hz

    def put(self) -> None:
        """Publish the next sample."""
        end = self._at + self._sizes[self._index % len(self._sizes)]
        self._publisher.put(self._data[self._at : end])
        self._at, self._index = end % len(self._data), self._index + 1

    def warm(self) -> None:
        """Publish a single byte."""
        self._publisher.put(b"\0")


def warm(streams: list[Stream]) -> None:
    """Publish single bytes until a line arrives, or the input ends."""
    while not select.select([sys.stdin], [], [], _WARM_S)[0]:
        for stream in streams:
            stream.warm()
    sys.stdin.readline()


if __name__ == "__main__":
    main()
