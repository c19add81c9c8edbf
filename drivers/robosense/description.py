"""What a RoboSense tells of itself (DIFOP): angles, return mode, speed, serial, state of its clock.

Source: RoboSense's rs_driver; the temperatures of Helios' boards as nebula's
robosense_decoders have them from the manual.  All integers are big-endian.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.robosense.models import PACKET_BYTES, YMD, Model
from drivers.robosense.packets import DUAL_NAMES
from recorder.common.errors import FormatError

DESCRIPTION_ID: Final = bytes.fromhex("a5ff005a11115555")
"""First bytes of a description."""
M1_BYTES: Final = 256
_SPEED, _MOUNTING, _SERIAL, _MODE, _SYNC = 8, 289, 292, 300, 301
_GPS: Final = {YMD: 357, "utc": 359}
_BOARDS: Final = 342
_ANGLE: Final = np.dtype([("sign", "u1"), ("value", ">u2")])
_SYNC_MODES: Final = {0: "GPS", 1: "PTP end to end", 2: "PTP peer to peer", 3: "gPTP"}
_SYNC_STATES: Final = {0: "not synchronized", 1: "synchronized by GPS", 2: "synchronized by PTP"}

Angles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Description:
    """A device's description.

    Attributes:
        returns: names of the returns of a firing.
        rate_hz: turns in a second, as set; 0: unknown.
        serial: of the device, hexadecimal.
        elevation_deg, azimuth_deg: [channels]; None: the device is not calibrated.
        firing_us: [channels], where they depend on the mounting; empty: those of the model.
        values: all else, for a state; JSON types.
    """

    returns: tuple[str, ...]
    rate_hz: float
    serial: str
    elevation_deg: Angles | None
    azimuth_deg: Angles | None
    values: Mapping[str, Any]
    firing_us: tuple[float, ...] = ()


def is_description(payload: bytes) -> bool:
    """Return whether a datagram is a description of a device."""
    return payload.startswith(DESCRIPTION_ID) and len(payload) in (PACKET_BYTES, M1_BYTES)


def read_description(model: Model, payload: bytes) -> Description:
    """Read the description of a spinning model.

    Raises:
        FormatError: the packet is no description.
    """
    if len(payload) != PACKET_BYTES or not payload.startswith(DESCRIPTION_ID):
        raise FormatError(f"a packet of {len(payload)} bytes is no description of the device")
    mode, rpm = payload[_MODE], int.from_bytes(payload[_SPEED : _SPEED + 2], "big")
    returns = DUAL_NAMES if mode in model.dual else (dict(model.single).get(mode, "single"),)
    serial = payload[_SERIAL : _SERIAL + 6].hex()
    values: dict[str, Any] = {"serial": serial, "return_mode": mode, "set_rpm": rpm}
    if model.time == YMD:
        values["gps_status"] = payload[_GPS[YMD]]
    elif not model.number_at:  # Airy tells neither
        values |= read_sync(payload[_SYNC], payload[_SYNC + 1])
    if model.boards:
        counts = np.frombuffer(payload, ">u2", 5, _BOARDS).astype(np.float64) / 4096
        values["boards_c"] = [
            *(round(503.975 * counts[0] - 273.15), *(round(200 * c - 50) for c in counts[1:4])),
            round(503.975 * counts[4] - 273.15),
        ]
    elevation, azimuth = _read_angles(model, payload)
    firing_us: tuple[float, ...] = ()
    if payload[_MOUNTING] < len(model.mountings):
        firing_us = model.mountings[payload[_MOUNTING]]
    return Description(returns, rpm / 60, serial, elevation, azimuth, values, firing_us)


def read_m1_description(payload: bytes) -> dict[str, Any]:
    """Return the values of an M1's description.

    Raises:
        FormatError: the packet is no description of an M1.
    """
    if len(payload) != M1_BYTES or not payload.startswith(DESCRIPTION_ID):
        raise FormatError(f"a packet of {len(payload)} bytes is no description of an M1")
    sync = read_sync(payload[45], payload[46])
    return {
        "serial": payload[38:44].hex(),
        "return_mode": payload[44],
        "set_hz": payload[9],
        **sync,
    }


def read_sync(mode: int, state: int) -> dict[str, Any]:
    """Return the state of the synchronization of the device's clock, in words."""
    return {
        "time_sync": _SYNC_MODES.get(mode, f"mode {mode}"),
        "time_sync_state": _SYNC_STATES.get(state, f"state {state}"),
    }


def _read_angles(model: Model, payload: bytes) -> tuple[Angles | None, Angles | None]:
    """Return the channels' elevation and azimuth, deg; None where they are not filled in."""
    count = model.channels
    vertical, horizontal = model.angles_at
    if horizontal < 0:  # three bytes without a sign: the first half looks down
        digits = np.frombuffer(payload, "u1", 3 * count, vertical).reshape(count, 3).astype(int)
        values = digits @ (65536, 256, 1) * model.angle_deg
        elevation = np.where(np.arange(count) < count // 2, -values, values)
        azimuth = np.zeros(count)
    else:
        found = [np.frombuffer(payload, _ANGLE, count, at) for at in (vertical, horizontal)]
        if (found[0]["sign"] == 0xFF).any():
            return None, None
        elevation, azimuth = (
            np.where(each["sign"] != 0, -1.0, 1.0) * each["value"] * model.angle_deg
            for each in found
        )
    right = elevation.any() and (np.abs(elevation) <= 90).all() and (np.abs(azimuth) <= 180).all()
    return (elevation, azimuth) if right else (None, None)


def make_description(
    model: Model, elevation_deg: Angles, azimuth_deg: Angles, *, mode: int, rpm: int = 600
) -> bytes:
    """Return a description, as the device with these angles sends it."""
    packet = bytearray(PACKET_BYTES)
    packet[: len(DESCRIPTION_ID)] = DESCRIPTION_ID
    packet[_SPEED : _SPEED + 2] = rpm.to_bytes(2, "big")
    packet[_SERIAL : _SERIAL + 6] = b"\x01\x02\x03\x04\x05\x06"
    packet[_MODE] = mode
    if model.time != YMD:
        packet[_SYNC : _SYNC + 2] = bytes((1, 2))
    vertical, horizontal = model.angles_at
    if horizontal < 0:
        for k, value in enumerate(np.rint(np.abs(elevation_deg) / model.angle_deg).tolist()):
            packet[vertical + 3 * k : vertical + 3 * k + 3] = int(value).to_bytes(3, "big")
        return bytes(packet)
    for at, degrees in ((vertical, elevation_deg), (horizontal, azimuth_deg)):
        angles = np.zeros(model.channels, _ANGLE)
        angles["sign"], angles["value"] = degrees < 0, np.rint(np.abs(degrees) / model.angle_deg)
        packet[at : at + angles.nbytes] = angles.tobytes()
    return bytes(packet)
