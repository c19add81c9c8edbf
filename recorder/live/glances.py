"""Glances at streams that nobody looks at: whether their pictures are frozen.

While somebody is connected, every stream is watched for one message every few seconds.  A picture,
a sweep or a radar frame that stays the same under fresh stamps is frozen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from recorder.contract.errors import ProtocolError
from recorder.contract.streams import StreamSpec
from recorder.live.hub import Hub
from recorder.live.views import Fingerprint

EVERY_S = 4.0
"""Interval between two glances at a stream."""
FROZEN = 3
"""Glances in a row with the same payload under fresh stamps."""
_LEAST_WAIT_S = 2.0
_PAUSE_S = 0.2
_PERIODS = 4.0


@dataclass(slots=True)
class _Seen:
    same: int = 0  # glances in a row with this fingerprint
    fingerprint: int | None = None
    last_ns: int = 0


class Glances:
    """Looks at all streams of a hub in turn; `attend` starts and stops it::

    glances = Glances(hub, executor)
    glances.attend(1)
    glances.frozen("camera")
    """

    def __init__(self, hub: Hub, executor: Executor) -> None:
        self._hub = hub
        self._executor = executor
        self._seen: dict[str, _Seen] = {}
        self._some = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    def attend(self, viewers: int) -> None:
        """Take the number of viewers; without one nothing is looked at."""
        if viewers:
            self._some.set()
        else:
            self._some.clear()

    def frozen(self, stream: str) -> bool:
        """Whether fresh stamps carried the same payload at the last glances."""
        seen = self._seen.get(stream)
        return seen is not None and seen.same >= FROZEN - 1

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            began_s = time.monotonic()
            specs = dict(self._hub.specs)
            for gone in self._seen.keys() - specs.keys():
                del self._seen[gone]
            await asyncio.gather(*(self._look(spec) for spec in specs.values()))
            left_s = EVERY_S - (time.monotonic() - began_s)
            # Streams that are declared meanwhile are not left waiting for long.
            await asyncio.sleep(max(_PAUSE_S, left_s) if specs else _PAUSE_S)

    async def _look(self, spec: StreamSpec) -> None:
        news = asyncio.Event()
        watch = self._hub.watch(spec.name, news.set)
        try:
            async with asyncio.timeout(max(_LEAST_WAIT_S, _PERIODS / (spec.rate_hz or 1e9))):
                await news.wait()
            message = watch.take()
        except TimeoutError:
            return
        finally:
            watch.close()
        if message is None:
            return
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ProtocolError):  # of a driver that has just changed
            fingerprint = await loop.run_in_executor(
                self._executor, lambda: Fingerprint(spec).of(message)
            )
            seen = self._seen.setdefault(spec.name, _Seen())
            _compare(seen, fingerprint, int(np.max(message.t_mono_ns)))


def _compare(seen: _Seen, fingerprint: int | None, last_ns: int) -> None:
    if last_ns <= seen.last_ns:
        return  # the newest message of the glance before: no fresh stamp
    same = fingerprint is not None and fingerprint == seen.fingerprint
    seen.same = seen.same + 1 if same else 0
    seen.fingerprint, seen.last_ns = fingerprint, last_ns
