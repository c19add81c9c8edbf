"""The stream of a radar's frames, and its items."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import SensorConfig, State, incomplete
from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.frames import AssembledFrame
from drivers.mmwave.options import RadarSetup
from recorder.codecs.streams import ChannelSpec, StreamSpec

if TYPE_CHECKING:
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


def radar_stream(sensor: SensorConfig, setup: RadarSetup, warnings: list[str]) -> StreamSpec:
    """Return the declaration of a radar's stream; `warnings` are about its configuration."""
    chirp, order, cfg, options = setup.chirp, setup.iq_order, setup.cfg, sensor.options
    calibration = cfg.calibration if cfg is not None else None
    if sensor.scheme == "sim":
        known = not options["phase_error_deg"]
        calibration = chirp.antennas.ideal_calibration() if known else None
    layout = f"order {order}" if chirp.antennas.complex_samples else "real"
    return StreamSpec(
        sensor.name,
        (
            ChannelSpec("iq", "raw", "i2", chirp.shape, f"raw ADC samples, {layout}"),
            ChannelSpec("valid", "raw", "u1", (), "1 where nothing of the frame is missing"),
        ),
        rate_hz=chirp.rate_hz,
        bytes_per_sample=chirp.frame_bytes + 1,
        finite=sensor.scheme == "file",
        description=f"radar {chirp.device}",
        files={"radar.json": json.dumps(chirp.intrinsics(order, calibration), indent=4) + "\n"},
        settings={
            "iq_order": order,
            "radar": asdict(chirp) | {"port": options["radar"]["port"]},
            "capture": dict(options["capture"]),
            **({"cfg": [*cfg.commands, cfg.start]} if cfg is not None else {}),
            **({"warnings": warnings} if warnings else {}),
        },
    )
