"""Points of the sweeps of any lidar but an Ouster, whose ranges the browser converts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Message
from recorder.codecs.beams import BEAMS
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable
from recorder.perception.encoded import EncodedSamples
from recorder.perception.frames import cloud_channel
from recorder.perception.lidar.clouds import find_brightness, make_point_source
from recorder.perception.lidar.points import find_returns, stack_xyz
from recorder.viewers.live.views.drawing import Drawing, checked_options

_OPTIONS: Final[OptionTable] = {
    "points": Option(
        "int", 0, "largest number of points that are shown; 0: all", minimum=0, maximum=1 << 28
    )
}
_WHITE_PERCENT: Final = 99  # of the values are not brighter than white


class CloudView:
    """View of the points of the newest sweep.

    A drawing has the array ``points``, f4 [n, 3], m, in the sensor's frame, without points that
    have no return; and ``intensity``, u1 [n], if the points have one.  The header has ``count``,
    the number of points with a return; ``step`` (every Nth of them is shown); and
    ``intensity_white``, the value that 255 represents.
    """

    every = False
    static: Drawing | None = None

    def __init__(self, spec: StreamSpec, options: Mapping[str, Any]) -> None:
        self._most: int = checked_options(spec, "cloud", _OPTIONS, options)["points"]
        self._source, self._samples = make_point_source(spec), EncodedSamples(spec)
        self._brightness = find_brightness(self._source)

    @staticmethod
    def is_offered(spec: StreamSpec) -> bool:
        """Check that the stream has points, or ranges with a description of the beams."""
        return cloud_channel(spec) is not None or BEAMS in spec.files

    def draw(self, messages: Sequence[Message]) -> Drawing | None:
        """Draw the newest sweep; see `recorder.viewers.live.views.View`."""
        message = messages[-1]
        self._samples.check(message)
        _, points = self._source.points(self._source.decode_sample(self._samples, message), 0)
        points = points[find_returns(points)]
        step = max(1, -(-len(points) // self._most)) if self._most else 1
        shown = points[::step]
        drawing = Drawing({"count": len(points), "step": step}, [("points", stack_xyz(shown))])
        if self._brightness is not None:
            brightness, drawing.header["intensity_white"] = _scale(shown[self._brightness])
            drawing.arrays.append(("intensity", brightness))
        return drawing


@np.errstate(invalid="ignore", over="ignore")  # values may be any numbers
def _scale(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], float]:
    """Convert brightness to 8 bits; return also the value that 255 stands for."""
    values = np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0)
    white = float(np.percentile(values, _WHITE_PERCENT)) if len(values) else 0.0
    if white <= 0:
        white = 1.0
    return np.clip(values * (255 / white) + 0.5, 0, 255).astype(np.uint8), white
