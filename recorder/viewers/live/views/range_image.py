"""Range images of lidars whose columns lie at other azimuths in every turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from recorder.bus.wire import Message
from recorder.codecs.beams import BEAMS
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable
from recorder.perception.encoded import EncodedSamples
from recorder.perception.lidar.beam_pictures import BeamPictures
from recorder.perception.lidar.beams import RANGES, REFLECTIVITIES
from recorder.viewers.live.views.drawing import Drawing, checked_options

_OPTIONS: Final[OptionTable] = {
    "points": Option(
        "int", 0, "largest number of pixels that are shown; 0: all", minimum=0, maximum=1 << 28
    )
}


class RangeImageView:
    """View of the first returns of the newest sweep as a picture, see `BeamPictures`.

    A drawing has the arrays ``range``, u2 [rows, columns], 0 without a return, and ``intensity``,
    u1 of the same shape, the reflectivity.  The header has what the header of `SweepView` has.
    """

    every = False
    static: Drawing | None = None

    def __init__(self, spec: StreamSpec, options: Mapping[str, Any]) -> None:
        points: int = checked_options(spec, "range_image", _OPTIONS, options)["points"]
        self._pictures, self._samples = BeamPictures(spec, points=points), EncodedSamples(spec)

    @staticmethod
    def is_offered(spec: StreamSpec) -> bool:
        """Check that the stream has ranges with a description of the beams."""
        return BEAMS in spec.files

    def draw(self, messages: Sequence[Message]) -> Drawing | None:
        """Draw the newest sweep; see `recorder.viewers.live.views.View`."""
        message, pictures = messages[-1], self._pictures
        self._samples.check(message)

        def decode(channel: str) -> Any:
            return self._samples.decoded(message, channel)

        places = pictures.find_places({name: decode(name) for name in pictures.channels})
        header = {
            "rows": pictures.shape[0],
            "columns": pictures.shape[1],
            "row_step": pictures.row_step,
            "column_step": pictures.column_step,
            "range_unit_m": pictures.unit_m,
            "intensity": "reflectivity",
            "intensity_white": 255.0,
        }
        arrays = (("range", RANGES[0]), ("intensity", REFLECTIVITIES[0]))
        shown = [(name, np.ascontiguousarray(pictures.select(decode(channel), places)))
                 for name, channel in arrays]  # fmt: skip
        return Drawing(header, [*shown])
