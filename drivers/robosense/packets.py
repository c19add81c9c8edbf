"""Decoder of RoboSense's packets, vectorised over packets: columns of ranges, with their times.

Source: RoboSense's rs_driver; the models are in `drivers.robosense.models`.  All integers are
big-endian.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.lidar.columns import Columns, epoch_seconds, spread_azimuth
from drivers.robosense.models import MODELS, PACKET_BYTES, YMD, Model
from recorder.common.errors import FormatError

TURN: Final = 36000
"""Azimuths of a turn, in 0.01 deg."""
DESCRIPTION_ID: Final = bytes.fromhex("a5ff005a11115555")
"""First bytes of the packets that describe the device (DIFOP)."""

Packets = npt.NDArray[np.uint8]


@functools.cache
def block_dtype(model: Model) -> np.dtype[Any]:
    """Return the layout of a packet's block."""
    laser = np.dtype([("range", ">u2"), ("reflectivity", "u1")])
    return np.dtype(
        [("mark", "u1"), ("return", "u1"), ("azimuth", ">u2"), ("lasers", laser, (model.lasers,))]
    )


def find_models(packet: bytes) -> list[Model]:
    """Return the models that have such packets.

    Packets of RS-16 and RS-32 do not differ: the config names the model.

    Raises:
        FormatError: no model has such packets.
    """
    found = []
    for model in MODELS.values():
        marks = [packet[model.header + k * model.block_bytes :][:1] for k in range(model.blocks)]
        if (
            len(packet) == PACKET_BYTES
            and packet.startswith(model.id)
            and set(marks) == {bytes([model.mark])}
        ):
            found.append(model)
    if not found:
        head = packet[:8].hex(" ")
        raise FormatError(
            f"a packet of {len(packet)} bytes that begins with {head} is not of a known model"
        )
    return found


class Decoder:
    """Decoder of the packets of one device.

    Args:
        model: of the device.
        returns: number of returns of a firing, 1 or 2, by the device's description.
    """

    def __init__(self, model: Model, returns: int) -> None:
        self._model, self._returns = model, returns
        self._rest: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None = None

    def decode(self, packets: Packets) -> Columns:
        """Decode packets, u1 [packets, 1248], in order."""
        model, count = self._model, len(packets)
        layout = block_dtype(model)
        end = model.header + model.blocks * layout.itemsize
        data = np.ascontiguousarray(packets[:, model.header : end])
        blocks = data.view(layout).reshape(count, model.blocks)
        times = decode_times(model, packets)[:, None] + self._block_times(blocks)
        return self._columns(blocks.ravel(), times.ravel())

    def _block_times(self, blocks: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the blocks' times after their packets', ns: blocks of one azimuth are one."""
        azimuth = blocks["azimuth"].astype(np.int64)
        step_us = self._model.column_us
        if self._model.lasers > self._model.channels and self._returns == 1:
            step_us *= 2
        steps = np.diff(azimuth, axis=1, prepend=azimuth[:, :1]) != 0
        if self._model.lasers > self._model.channels:
            steps[:, 1:] = True
        return np.round(1000 * step_us * np.cumsum(steps, axis=1)).astype(np.int64)

    def _columns(self, blocks: npt.NDArray[Any], times: npt.NDArray[np.int64]) -> Columns:
        model, returns = self._model, self._returns
        if model.lasers > model.channels:  # two firings, or two returns of one
            lasers = blocks["lasers"].reshape(len(blocks), 2, model.channels)
            if returns == 1:
                between = round(1000 * model.column_us)
                azimuth = spread_azimuth(blocks["azimuth"], TURN)
                times = np.stack([times, times + between], 1).ravel()
                return _make(azimuth, times, lasers.reshape(1, -1, model.channels))
            return _make(blocks["azimuth"].astype("<u4"), times, lasers.swapaxes(0, 1))
        size = returns * (model.channels // model.lasers)
        if size > 1:
            blocks, times = self._align(blocks, times, size)
        whole = blocks.reshape(-1, size)
        lasers = whole["lasers"].reshape(-1, returns, model.channels).swapaxes(0, 1)
        return _make(whole["azimuth"][:, 0].astype("<u4"), times[::size], lasers)

    def _align(
        self, blocks: npt.NDArray[Any], times: npt.NDArray[np.int64], size: int
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return the blocks of whole columns; the rest waits for the next packets."""
        if self._rest is not None:
            blocks = np.concatenate([self._rest[0], blocks])
            times = np.concatenate([self._rest[1], times])
        azimuth = blocks["azimuth"]
        begins = np.flatnonzero(np.diff(azimuth.astype(np.int64), prepend=-1))
        ends = np.append(begins[1:], len(azimuth))
        last = int(begins[-1]) if len(begins) and ends[-1] - begins[-1] < size else len(azimuth)
        self._rest = (blocks[last:].copy(), times[last:].copy())
        whole = ends - begins == size
        keep = (begins[whole][:, None] + np.arange(size)).ravel()
        return blocks[keep], times[keep]


def _make(azimuth: Any, times: npt.NDArray[np.int64], lasers: npt.NDArray[Any]) -> Columns:
    return Columns(azimuth, times, lasers["range"], lasers["reflectivity"])


def decode_times(model: Model, packets: Packets) -> npt.NDArray[np.int64]:
    """Return the packets' times, i8 [packets], ns since 1970 by the sensor's clock."""
    field = packets[:, model.time_at : model.time_at + 10].astype(np.int64)
    if model.time == YMD:
        year, month, day, hour, minute, second = field[:, :6].T
        seconds = epoch_seconds(year + 2000, month, day, hour, minute, second)
        micros = (field[:, 6] * 256 + field[:, 7]) * 1000 + field[:, 8] * 256 + field[:, 9]
    else:
        seconds = field[:, :6] @ (256 ** np.arange(5, -1, -1, dtype=np.int64))
        micros = field[:, 6:] @ (256 ** np.arange(3, -1, -1, dtype=np.int64))
    return np.asarray(seconds * 1_000_000_000 + micros * 1000, np.int64)


def read_angles(model: Model, packet: bytes) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the channels' elevation and azimuth, deg, from the device's description (DIFOP).

    Raises:
        FormatError: it is no description, or the device is not calibrated.
    """
    if len(packet) != PACKET_BYTES or not packet.startswith(DESCRIPTION_ID):
        raise FormatError(f"a packet of {len(packet)} bytes is no description of the device")
    count = model.channels
    vertical, horizontal = model.angles_at
    if horizontal < 0:  # three bytes without a sign: the first half looks down
        digits = np.frombuffer(packet, "u1", 3 * count, vertical).reshape(count, 3).astype(int)
        values = digits @ (65536, 256, 1) * model.angle_deg
        return np.where(np.arange(count) < count // 2, -values, values), np.zeros(count)
    angle = np.dtype([("sign", "u1"), ("value", ">u2")])
    found = [np.frombuffer(packet, angle, count, at) for at in (vertical, horizontal)]
    if (found[0]["sign"] == 0xFF).any():
        raise FormatError("the device's description has no calibration of its angles")
    elevation, azimuth = (
        np.where(each["sign"] != 0, -1.0, 1.0) * each["value"] * model.angle_deg for each in found
    )
    return elevation, azimuth
