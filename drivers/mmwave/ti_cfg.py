"""Reader of TI's ``.cfg`` files, whose lines configure a radar with the mmWave demo firmware.

The formats of the commands are those of TI's "mmWave SDK User Guide" (3.6, section 3.4): lines of
space-separated numbers, and comments that begin with ``%``.  The file defines a frame's shape, the
order of I and Q, and, in ``compRangeBiasAndRxChanPhase``, the calibration of the antennas.  That
command holds a range bias in m, then for each transmitter of the device and each receiver, in the
device's own order, the real and imaginary part of the factor by which a signal is multiplied (TI's
``AoAProcDSP_rxChanPhaseBiasCompensation``; the factors are picked by the order of the chirps).

::

    file = read_cfg(path, "AWR1843", "radar.cfg")
    file.chirp, file.iq_order, file.commands, file.start
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from drivers.mmwave.chirp import DEVICES, ChirpConfig
from recorder.common.errors import ConfigError

LVDS_COMMAND: Final = "lvdsStreamCfg -1 0 1 0"
"""Command that sends the samples, and no headers, to the capture card."""

_PLATFORMS: Final = {
    "xWR16xx": "AWR1642", "xWR18xx": "AWR1843", "xWR18xx_AOP": "AWR1843AOP", "xWR2944": "AWR2944",
    "AWR2944": "AWR2944", "AWR2944P": "AWR2944P",
}  # fmt: skip
_PLATFORM: Final = re.compile(r"^%\s*Platform\s*:\s*(\S+)", re.MULTILINE)
_COUNTS: Final[Mapping[str, tuple[int, ...]]] = {
    "dfeDataOutputMode": (1,), "channelCfg": (3, 5), "adcCfg": (2,), "adcbufCfg": (5,),
    "profileCfg": (14,), "chirpCfg": (8,), "frameCfg": (7, 8), "lvdsStreamCfg": (4,),
}  # fmt: skip
_NEEDED: Final = ("channelCfg", "adcCfg", "adcbufCfg", "profileCfg", "chirpCfg", "frameCfg")
_LARGEST_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class CfgFile:
    """A ``.cfg`` file.

    Attributes:
        chirp: the chirps and the frame.
        iq_order: ``qqii`` or ``iiqq``, by adcbufCfg's sampleSwap.
        commands: lines for the radar, without the start of the sensor.
        start: the line that starts the sensor.
        calibration: ``range_bias_m`` and ``coefficients`` [tx][rx][re, im], in the order of the
            chirps; None where the file has none, or only those of an ideal array.
        warnings: the recorder's changes.
    """

    chirp: ChirpConfig
    iq_order: str
    commands: tuple[str, ...]
    start: str
    calibration: dict[str, Any] | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    name: str
    values: tuple[float, ...]


def read_cfg(path: Path, device: str | None, key: str) -> CfgFile:
    """Read a ``.cfg`` file.

    Args:
        path: the file.
        device: a key of `DEVICES`; None: by the file's comment ``% Platform:``.
        key: the file's path in the config, for messages.

    Raises:
        ConfigError: the file cannot be read, lacks a command, or describes frames that a capture
            cannot be split into; the message names the file and the line.
    """
    try:
        text = path.read_bytes()[:_LARGEST_BYTES].decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", key=key) from None
    return _Reader(str(path), key, device, text).read()


def profile_keys(profile: Sequence[float]) -> dict[str, Any]:
    """Return the keys of a `ChirpConfig` that a line ``profileCfg`` has."""
    return {
        "frequency": profile[1],
        "idle_time": profile[2],
        "adc_start_time": profile[3],
        "ramp_end_time": profile[4],
        "freq_slope": profile[7],
        "tx_start_time": profile[8],
        "adc_samples": int(profile[9]),
        "sample_rate": int(profile[10]),
    }


class _Reader:
    def __init__(self, where: str, key: str, device: str | None, text: str) -> None:
        self._where, self._key = where, key
        if device is None:
            found = _PLATFORM.search(text)
            device = _PLATFORMS.get(found[1] if found else "")
            if device is None:
                raise self._fail(None, "names no known platform; set radar.device")
        # The file itself names the transmitters that are used.
        self._device = "AWR1843" if device == "AWR1843L" else device
        if DEVICES[self._device].rx != 4 or self._device == "AWRL6844":
            raise self._fail(None, f"the commands of a {device} are not read; set radar instead")
        self._text = text
        self._last: dict[str, _Line] = {}
        self._chirps: dict[int, _Line] = {}
        self._commands: list[str] = []
        self._start = "sensorStart"
        self._warnings: list[str] = []

    def read(self) -> CfgFile:
        lines = self._text.splitlines()
        for number, raw in enumerate(lines, 1):
            text = raw.split("%")[0].strip()
            if text and not text.startswith("#"):
                self._take(number, text)
        for name in _NEEDED:
            if name not in self._last:
                raise self._fail(None, f"lacks {name}")
        if "lvdsStreamCfg" not in self._last:
            self._stream_samples(None)
        chirp = self._chirp()
        return CfgFile(
            chirp,
            "qqii" if self._value("adcbufCfg", 2) == 1 else "iiqq",
            tuple(self._commands),
            self._start,
            self._calibration(chirp),
            tuple(self._warnings),
        )

    def _take(self, number: int, text: str) -> None:
        name, *words = text.split()
        if name == "sensorStart":
            self._start = text
            return
        if name == "advFrameCfg":
            raise self._fail(number, "advanced frames (advFrameCfg) are not supported")
        line = _Line(number, name, self._numbers(number, name, words))
        self._last[name] = line
        if name == "chirpCfg":
            first, last = int(line.values[0]), int(line.values[1])
            if not 0 <= first <= last < 512:
                raise self._fail(number, f"chirps {first} to {last} do not exist")
            self._chirps |= dict.fromkeys(range(first, last + 1), line)
        if name == "lvdsStreamCfg" and line.values[1:] != (0, 1, 0):
            self._stream_samples(text)
        else:
            self._commands.append(text)

    def _numbers(self, number: int, name: str, words: Sequence[str]) -> tuple[float, ...]:
        if name not in _COUNTS and name != "compRangeBiasAndRxChanPhase":
            return ()
        try:
            values = tuple(map(float, words))
        except ValueError:
            raise self._fail(number, f"{name} has an argument that is no number") from None
        if not all(map(math.isfinite, values)):
            raise self._fail(number, f"{name} has an argument that is no number")
        counts = _COUNTS.get(name)
        if counts is not None and len(values) not in counts:
            wanted = " or ".join(map(str, counts))
            raise self._fail(number, f"{name} has {len(values)} arguments instead of {wanted}")
        return values

    def _stream_samples(self, text: str | None) -> None:
        self._warnings.append(f"{self._where}: {text or 'no lvdsStreamCfg'}: {LVDS_COMMAND} is set")
        self._commands.append(LVDS_COMMAND)

    def _value(self, name: str, index: int) -> float:
        return self._last[name].values[index]

    def _chirp(self) -> ChirpConfig:
        device, last = DEVICES[self._device], self._last
        self._require("dfeDataOutputMode", 0, (1,), "only frames of one kind (1) are supported")
        self._require("channelCfg", 0, (15,), "all four receivers (15) are needed")
        self._require("adcCfg", 0, (2,), "samples of 16 bits (2) are needed")
        formats = (1, 2) if device.complex_samples else (0,)
        self._require("adcCfg", 1, formats, f"the samples of a {self._device} have another format")
        self._require("adcbufCfg", 1, (0,) if device.complex_samples else (1,), "unlike adcCfg")
        self._require("adcbufCfg", 3, (1,), "only receivers in turn (1) are supported")
        frame = last["frameCfg"].values
        if frame[3]:
            self._warnings.append(f"{self._where}: the radar stops after {frame[3]:g} frames")
        transmitters, repeats = self._transmitters(int(frame[0]), int(frame[1]))
        period = frame[5] if len(frame) == 8 else frame[4]
        profile = last["profileCfg"].values
        if min(profile[9], profile[10], frame[2], period) <= 0 or profile[9] % 2:
            raise self._fail(last["profileCfg"].number, "the number of samples is odd or zero")
        plain = transmitters == tuple(range(device.tx))
        return ChirpConfig(
            device=self._device,
            **profile_keys(profile),
            frame_length=int(frame[2]) * repeats,
            frame_period=period,
            transmitters=None if plain else transmitters,
        )

    def _transmitters(self, first: int, last: int) -> tuple[tuple[int, ...], int]:
        """Return the transmitters in the order of their chirps, and their turns in a loop."""
        order: list[int] = []
        number = self._last["frameCfg"].number
        for index in range(first, last + 1):
            line = self._chirps.get(index)
            if line is None:
                raise self._fail(number, f"chirp {index} has no chirpCfg")
            if line.values[2] != self._value("profileCfg", 0) or any(line.values[3:7]):
                raise self._fail(line.number, "chirps of different shapes are not supported")
            mask = int(line.values[7])
            if mask.bit_count() != 1 or mask.bit_length() > DEVICES[self._device].tx:
                raise self._fail(line.number, f"transmitters {mask}: not one of the device's")
            order.append(mask.bit_length() - 1)
        turn = tuple(dict.fromkeys(order))
        if not turn or order != list(turn) * (len(order) // len(turn)):
            raise self._fail(number, "the transmitters do not take turns")
        used, enabled = sum(1 << one for one in turn), int(self._value("channelCfg", 1))
        if used & ~enabled:
            raise self._fail(
                self._last["channelCfg"].number, f"transmitters {used} are used, {enabled} enabled"
            )
        return turn, len(order) // len(turn)

    def _calibration(self, chirp: ChirpConfig) -> dict[str, Any] | None:
        line = self._last.get("compRangeBiasAndRxChanPhase")
        if line is None:
            return None
        device = DEVICES[self._device]
        values = line.values
        if len(values) != 1 + 2 * device.tx * device.rx:
            wanted = 1 + 2 * device.tx * device.rx
            raise self._fail(line.number, f"{line.name} has {len(values)} arguments, not {wanted}")
        pairs = list(zip(values[1::2], values[2::2], strict=True))
        if all(math.hypot(*pair) in (0.0, 1.0) and 0.0 in pair for pair in pairs):
            return None
        rows = [pairs[k * device.rx : (k + 1) * device.rx] for k in range(device.tx)]
        used = chirp.transmitters or range(device.tx)
        coefficients = [[list(pair) for pair in rows[k]] for k in used]
        if not all(any(pair) for row in coefficients for pair in row):
            raise self._fail(line.number, f"{line.name} has a factor of zero")
        return {"range_bias_m": values[0], "coefficients": coefficients, "method": line.name}

    def _require(self, name: str, index: int, allowed: Sequence[float], why: str) -> None:
        line = self._last.get(name)
        if line is not None and line.values[index] not in allowed:
            raise self._fail(line.number, f"{name}: {line.values[index]:g}: {why}")

    def _fail(self, number: int | None, message: str) -> ConfigError:
        place = self._where if number is None else f"{self._where}:{number}"
        return ConfigError(f"{place}: {message}", key=self._key)
