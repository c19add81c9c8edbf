"""The recorder: it records every sensor of a vehicle, and reads what was recorded.

::

    import recorder

    with recorder.open("sessions/drive") as session:
        for frame in session.synchronized("camera", lidar=0.05, imu=0.5):
            frame.camera.rgb            # uint8 [height, width, 3]
            frame.lidar.points("rig")   # float32 [n, 3], m; frame.lidar is None where none is near
            frame.imu.acc               # the window of 0.5 s

The names in ``__all__`` are public, and so are the packages `recorder.formats.vrs`,
`recorder.formats.mcap` and `recorder.archives.ncore`, and, for drivers, `drivers.kit.driver`.
Everything else is internal and may change with every version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recorder.api.calibration import Calibration
    from recorder.api.errors import UnknownNameError
    from recorder.api.frame import Frame
    from recorder.api.session import Frames, Gap, Session, frames, open, sessions
    from recorder.api.stream import Channel, Sample, Stream, Window
    from recorder.common.errors import FormatError, RecorderError, SessionError, UsageError

__version__ = "0.1.0"
__all__ = [
    "Calibration",
    "Channel",
    "FormatError",
    "Frame",
    "Frames",
    "Gap",
    "RecorderError",
    "Sample",
    "Session",
    "SessionError",
    "Stream",
    "UnknownNameError",
    "UsageError",
    "Window",
    "__version__",
    "frames",
    "open",
    "sessions",
]
_MODULES = {
    "recorder.api.calibration": ("Calibration",),
    "recorder.api.errors": ("UnknownNameError",),
    "recorder.api.frame": ("Frame",),
    "recorder.api.session": ("Frames", "Gap", "Session", "frames", "open", "sessions"),
    "recorder.api.stream": ("Channel", "Sample", "Stream", "Window"),
    "recorder.common.errors": ("FormatError", "RecorderError", "SessionError", "UsageError"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the package itself imports nothing."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
