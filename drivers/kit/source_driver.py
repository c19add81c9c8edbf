"""Drivers whose sources are classes of their own: one class for each kind of source.

::

    class MyDriver(SourceDriver):
        def open(self):
            return self.begin(FileSource(self.sensor))      # has open(), items() and close()
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

from drivers.kit.driver import Driver, EndOfSource, Item, NewStream, SensorConfig
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError


class ReadSource(Protocol):
    """Interface of a source that its constructor opens."""

    def read(self) -> Item | None:
        """Return the next item; raises as `Driver.read`."""

    def close(self) -> None:
        """Release the source."""


class ReadDriver(Driver):
    """Base of drivers that read one source, which `open` sets as `source`."""

    source: ReadSource | None = None

    def read(self) -> Item | None:
        if self.source is None:
            raise SourceError(f"{self.sensor.name}: read before open")
        return self.source.read()

    def close(self) -> None:
        if self.source is not None:
            self.source.close()
        self.source = None


class ItemSource(Protocol):
    """Interface of a source of items."""

    def open(self) -> Sequence[StreamSpec]:
        """Open the source and return its streams; raises as `Driver.open`."""

    def items(self) -> Iterator[Item | NewStream | None]:
        """Yield items in order of time, None while there are none; raises as `Driver.read`."""

    def close(self) -> None:
        """Release the resources that `open` or the constructor acquired."""


class FindingDriver(Driver):
    """Base of drivers whose sources are classes and may find streams.

    `open` makes a source and passes it to `begin`.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._source: ItemSource | None = None
        self._items: Iterator[Item | NewStream | None] = iter(())
        self._warned = False

    def begin(self, source: ItemSource, warnings: Sequence[str] = ()) -> Sequence[StreamSpec]:
        """Open a source and read it from now on; returns its streams.

        Args:
            source: is closed here, also where it cannot be opened.
            warnings: are printed once, even if the device is opened again.
        """
        self._source = source
        self.warnings = list(warnings)
        if not self._warned:
            for text in warnings:
                print(text, file=sys.stderr, flush=True)
        self._warned = self._warned or bool(warnings)
        try:
            streams = source.open()
        except BaseException:
            self.close()
            raise
        self._items = source.items()
        return streams

    def read(self) -> Item | NewStream | None:
        try:
            return next(self._items)
        except StopIteration:
            raise EndOfSource from None

    def close(self) -> None:
        self._items = iter(())
        if self._source is not None:
            self._source.close()
            self._source = None


class SourceDriver(FindingDriver):
    """Base of drivers whose sources are classes and declare all streams when they are opened."""

    def read(self) -> Item | None:
        item = super().read()
        assert not isinstance(item, NewStream)
        return item
