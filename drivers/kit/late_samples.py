"""Sorting of a played source's late samples.

A capture that is merged of two queues or interfaces, and a log of several buses, have samples that
lie some milliseconds before their predecessors.  Their stamps are valid, so they are sorted::

    late = LateSamples(100_000_000)      # for one stream
    for item in late.take(item):         # no later sample can precede these
        ...
    for item in late.flush():            # at the end of the source
        ...

A sample that lies further back is not late.  It keeps its place in the source, and
`drivers.kit.stamp_checks` judges it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from drivers.kit.driver import Item, Sample
from drivers.kit.sample_batches import single_samples


class LateSamples:
    """Sorter of one stream's samples by their stamps, within a bounded time; see the module.

    Args:
        late_ns: how far a sample may lie before its predecessor.
    """

    def __init__(self, late_ns: int) -> None:
        self._late_ns = late_ns
        self._held: deque[Item] = deque()
        self._latest_ns: int | None = None

    def take(self, item: Item) -> Sequence[Item]:
        """Return the items, in order, that no later sample can precede."""
        ready: list[Item] = []
        if not isinstance(item, Sample):
            self._held.append(item)
        elif len(item.t_ns):
            first_ns, last_ns = int(item.t_ns[0]), int(item.t_ns[-1])
            rises = item.count == 1 or bool((np.diff(item.t_ns) >= 0).all())
            if rises and (self._latest_ns is None or first_ns >= self._latest_ns):
                self._held.append(item)
                self._latest_ns = last_ns
            else:
                for sample in single_samples(item):
                    ready += self._place(sample)
        return [*ready, *self._ready()]

    def flush(self) -> Sequence[Item]:
        """Return the held samples at the end of the source."""
        held = list(self._held)
        self._held.clear()
        self._latest_ns = None
        return held

    def _place(self, sample: Sample) -> Sequence[Item]:
        """Hold one sample in its place; return the samples before one that is not late."""
        t_ns, latest_ns = int(sample.t_ns[0]), self._latest_ns
        if latest_ns is None or t_ns >= latest_ns:
            self._held.append(sample)
            self._latest_ns = t_ns
            return ()
        if latest_ns - t_ns > self._late_ns:
            before = self.flush()
            self._held.append(sample)
            self._latest_ns = t_ns
            return before
        behind: list[Item] = []  # of the sample, the last first
        while self._held:
            item = self._held.pop()
            if isinstance(item, Sample) and item.count > 1 and int(item.t_ns[-1]) > t_ns:
                self._held.extend(single_samples(item))
                continue
            if isinstance(item, Sample) and int(item.t_ns[0]) <= t_ns:
                self._held.append(item)
                break
            behind.append(item)
        self._held.append(sample)
        self._held.extend(reversed(behind))
        return ()

    def _ready(self) -> list[Item]:
        ready: list[Item] = []
        while self._held:
            item = self._held[0]
            if (
                isinstance(item, Sample)
                and self._latest_ns is not None
                and int(item.t_ns[-1]) > self._latest_ns - self._late_ns
            ):
                break
            ready.append(self._held.popleft())
        return ready
