"""The sources ``ncore:PATH#PART`` and ``edgefirst:PATH#PART`` of every driver.

They play a sensor of a dataset of others; ``recorder import`` names the parts.  The kit replaces
the driver by `DatasetSource`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from drivers.kit.driver import EndOfSource, Item, Lost, Sample
from drivers.kit.recorded_source import RecordedSource
from recorder.bus.messages import CHANGED
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, StorageError
from recorder.formats.datasets import Damage, Dataset, Samples, open_dataset


class DatasetSource(RecordedSource):
    """Source that plays one sensor of a dataset.

    Stamps count from the dataset's start, so that several sensors of it keep their relative times.
    A sample that cannot be read is `Lost`, cause ``corrupt``; one of another form than the first
    one, cause ``changed``.
    """

    ordered = True
    _dataset: Dataset | None = None
    _items: Iterator[Samples | Damage] = iter(())

    def _open(self) -> StreamSpec:
        path, part = self.sensor.path_and_part()
        try:
            dataset = self._dataset = open_dataset(self.sensor.scheme, path, part or "")
            stream = dataset.stream(part or "")
        except StorageError as error:
            raise FormatError(str(error)) from None
        self._origin_ns = dataset.start_ns
        self._items = stream.samples()
        return replace(stream.spec, name=self.sensor.name)

    def read(self) -> Item:
        """Return the next samples, or the loss of one.

        Raises:
            EndOfSource: the last one was already returned.
            SourceError: the rest cannot be read.
        """
        try:
            item = next(self._items, None)
        except (FormatError, StorageError) as error:
            raise self.sensor.fault(error) from None
        if item is None:
            raise EndOfSource
        name = self.sensor.name
        if isinstance(item, Damage):
            cause = CHANGED if item.changed else "corrupt"
            return Lost(name, item.t_ns, cause, 1, detail={"reason": item.reason})
        return Sample(name, item.t_ns, item.data)

    def close(self) -> None:
        """Close the dataset's files."""
        self._items = iter(())
        if self._dataset is not None:
            self._dataset.close()
            self._dataset = None
