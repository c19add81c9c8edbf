"""Point clouds of topics as samples of a stream: sweeps with as many points as came.

::

    stream = CloudStream(first_clouds)
    channels = stream.channels
    data, end_ns = stream.convert(cloud)      # of one sample
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from recorder.codecs.points import Column
from recorder.codecs.streams import ChannelSpec, points_channel
from recorder.formats.ros2.clouds import Cloud, CloudLayout

GRID: Final = "grid"
"""Channel with rows and columns of a cloud."""
_OLDEST_NS: Final = 2_000_000_000


def cloud_channels(columns: Sequence[Column]) -> tuple[ChannelSpec, ChannelSpec]:
    """Return the channels of a stream of clouds with those columns."""
    text = "rows and columns of the cloud; 1 row: its points are in no order"
    return (
        points_channel(columns, "points of the sweep"),
        ChannelSpec(GRID, "raw", "u4", (2,), text),
    )


class CloudStream:
    """Conversion of a topic's clouds to samples.

    Args:
        first: the topic's first clouds, at least one; they decide the columns and units.

    Attributes:
        channels: ``points.bin``, and ``grid`` u4 [2], the rows and columns of the cloud (1 row: its
            points are in no order).
        settings: frame, and meaning of the points' times, for configuration records.
        bytes_per_sample: mean size of the first clouds, packed.

    Raises:
        FormatError: the first cloud has no positions.
    """

    def __init__(self, first: Sequence[Cloud]) -> None:
        self._layout = CloudLayout.of(first)
        self.channels = cloud_channels(self._layout.columns)
        time = self._layout.time
        self.settings: dict[str, Any] = {"frame": first[0].header.frame_id, "point_time": None}
        if time is not None:
            meaning = {"field": time.field, "unit_ns": time.unit_ns, "origin": time.origin}
            self.settings["point_time"] = meaning
        self.bytes_per_sample = len(self._layout.pack(first[0]).frame)

    def convert(self, cloud: Cloud) -> tuple[dict[str, Any], int]:
        """Return the data of one sample, and its time minus the cloud's stamp, ns.

        Raises:
            StreamChangedError: the cloud has other fields than the first ones.
        """
        sweep = self._layout.pack(cloud)
        grid = np.array([[cloud.rows, cloud.columns]], "<u4")
        return {self.channels[0].name: [sweep.frame], GRID: grid}, sweep.end_ns

    @staticmethod
    def find_time(arrival_ns: int, age_ns: int, end_ns: int) -> int:
        """Return the time of a live sweep's sample on the clock of its arrival.

        It is that of the last point, if the cloud's stamp is of this computer's clock: at most 2 s
        before the arrival.  Else, and if it is later, it is that of the arrival.

        Args:
            arrival_ns: time of the cloud's arrival.
            age_ns: this computer's time at the arrival, minus the cloud's stamp.
            end_ns: of `convert`.
        """
        if 0 <= age_ns <= _OLDEST_NS:
            return min(arrival_ns, arrival_ns - age_ns + end_ns)
        return arrival_ns
