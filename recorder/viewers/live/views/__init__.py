"""Views of a stream: drawings, made of messages in a worker thread.

::

    list_views(spec)                                 # ("picture",)
    view = make_view(spec, "picture", {"width": 640})
    drawing = view.draw([message])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import UsageError
from recorder.viewers.live.views.cloud import CloudView
from recorder.viewers.live.views.drawing import Drawing, View
from recorder.viewers.live.views.picture import PictureView
from recorder.viewers.live.views.radar import RangeAzimuthView, RangeDopplerView
from recorder.viewers.live.views.range_image import RangeImageView
from recorder.viewers.live.views.series import SeriesView
from recorder.viewers.live.views.sweep import SweepView

__all__ = ["Drawing", "View", "list_views", "make_view"]


_AnyView = (
    PictureView
    | SweepView
    | CloudView
    | RangeImageView
    | RangeDopplerView
    | RangeAzimuthView
    | SeriesView
)

_VIEWS: Final[Mapping[str, type[_AnyView]]] = {
    "picture": PictureView,
    "sweep": SweepView,
    "cloud": CloudView,
    "range_image": RangeImageView,
    "range_doppler": RangeDopplerView,
    "range_azimuth": RangeAzimuthView,
    "series": SeriesView,
}


def list_views(spec: StreamSpec) -> tuple[str, ...]:
    """Return the names of the views that a stream offers, the preferred one first."""
    return tuple(name for name, view in _VIEWS.items() if view.is_offered(spec))


def make_view(spec: StreamSpec, name: str, options: Mapping[str, Any]) -> View:
    """Create a view of a stream; may take some tens of milliseconds.

    Raises:
        UsageError: the stream does not offer the view, or an option is wrong.
        FormatError: a file of the stream (``lidar.json``, ``beams.json``, ``radar.json``) is wrong.
    """
    offered = list_views(spec)
    if name not in offered:
        known = ", ".join(offered) or "none"
        raise UsageError(f"{spec.name}: has no view {name!r} (views: {known})")
    return _VIEWS[name](spec, options)
