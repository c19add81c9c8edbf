"""The items of a radar's frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import State, incomplete
from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.frames import AssembledFrame
from drivers.mmwave.raw_capture import CapturedFrame

Frame = npt.NDArray[np.int16]


def frame_data(frame: Frame, valid: bool = True) -> dict[str, npt.NDArray[Any]]:
    """Return the data of a frame's sample; `valid`: nothing of the frame is missing."""
    return {"iq": frame[None], "valid": np.full(1, valid, np.uint8)}


def incomplete_state(name: str, t_ns: int, frame: AssembledFrame | CapturedFrame) -> State:
    """Return the state of a frame that lacks packets."""
    values = {
        "frame": frame.index,
        "bytes_missing": frame.bytes_missing,
        "packets_lost": frame.packets_lost,
        "packets_corrupt": frame.packets_corrupt,
    }
    cause = "corrupt" if frame.packets_corrupt > frame.packets_lost else "network"
    parts = frame.packets_lost + frame.packets_corrupt
    return State(name, t_ns, values | incomplete(cause, parts))


def shape_frame(frame: AssembledFrame, chirp: ChirpConfig) -> Frame:
    """Return a frame's values, int16 [chirps, tx, rx, values]."""
    return frame.data.view("<i2").reshape(chirp.shape)
