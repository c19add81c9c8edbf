"""The command line of TI's mmWave demo firmware, as an AWR1843 or AWR1642 answers on its UART.

The UART echoes every character.  A command's answer is ``Done``, ``Ignored: ...`` or an error, then
the prompt.  Commands and their numbers of arguments are those of the mmWave SDK user's guide (3.6,
section 3.4).  Arguments that shape the captured data have an effect; of the other arguments, only
the number is checked.
"""

from __future__ import annotations

import math
from typing import Final

from drivers.mmwave.chirp import DEVICES, ChirpConfig
from drivers.mmwave.ti_cfg import profile_keys

PROMPT: Final = "mmwDemo:/>"
BOOT_NS: Final = 150_000_000
"""From reset to the prompt; bytes received on the UART until then are lost."""

_LINE: Final = "*" * 42
_BANNER: Final = f"\n{_LINE}\nxWR MMW Demo 03.06.00.00\n{_LINE}\n\n\r{PROMPT}"
_LONGEST: Final = 256  # bytes per line

_ARGUMENTS: Final = {
    "flushCfg": 0, "dfeDataOutputMode": 1, "channelCfg": 3, "adcCfg": 2, "adcbufCfg": 5,
    "profileCfg": 14, "chirpCfg": 8, "frameCfg": 7, "lowPower": 2, "guiMonitor": 7, "cfarCfg": 9,
    "multiObjBeamForming": 3, "calibDcRangeSig": 5, "clutterRemoval": 2, "aoaFovCfg": 5,
    "cfarFovCfg": 4, "measureRangeBiasAndRxChanPhase": 3, "extendedMaxVelocity": 2,
    "CQRxSatMonitor": 5, "CQSigImgMonitor": 3, "analogMonitor": 2, "lvdsStreamCfg": 4,
    "bpmCfg": 4, "calibData": 3, "sensorStart": None, "sensorStop": 0,
    "compRangeBiasAndRxChanPhase": None,
}  # fmt: skip
_NEEDED: Final = ("dfeDataOutputMode", "channelCfg", "adcCfg", "adcbufCfg", "profileCfg",
                  "chirpCfg", "frameCfg")  # fmt: skip
_USAGE: Final = "Error: Invalid usage of the CLI command\nError -1"


class _RefusedError(Exception):
    """The firmware's answer instead of ``Done``."""


class DemoFirmware:
    """Firmware that processes the bytes received on the UART and answers.

    >>> firmware = DemoFirmware("AWR1843")
    >>> firmware.power_on(0)
    >>> firmware.step(b"", BOOT_NS)              # the banner and the first prompt
    >>> firmware.step(b"sensorStop\\n", BOOT_NS)
    b'sensorStop\\nIgnored: Sensor is already stopped\\nDone\\n\\rmmwDemo:/>'

    Args:
        device: of `drivers.mmwave.chirp.DEVICES`, in the AWR1843 or AWR1642 family.

    Attributes:
        running: between sensorStart and sensorStop.
        starts: number of starts of the sensor since power on.
    """

    def __init__(self, device: str) -> None:
        self._tx_masks = {"AWR1642": (0b11,)}.get(device, (0b111, 0b101))
        self._device = device
        self._boot_ns: int | None = None  # time of the prompt; None: no power
        self._booted = False
        self._line = bytearray()
        self._settings: dict[str, list[float]] = {}
        self._transmitters: list[int] = []
        self.running = False
        self.starts = 0

    def power_on(self, now_ns: int) -> None:
        """Start, at power on or after a reset."""
        self._boot_ns, self._booted = now_ns + BOOT_NS, False
        self._line.clear()
        self._flush()
        self.running = False

    def power_off(self) -> None:
        """Stop answering until `power_on`."""
        self._boot_ns = None
        self.running = False

    def step(self, received: bytes, now_ns: int) -> bytes:
        """Process the bytes received since the last call; return the bytes sent on the UART."""
        if self._boot_ns is None or now_ns < self._boot_ns:
            return b""
        out = ""
        if not self._booted:
            self._booted, out, received = True, _BANNER, b""
        for byte in received:
            if byte in b"\r\n":
                line = self._line.decode("ascii", "replace").strip()
                self._line.clear()
                out += line + "\n" + self._run(line) + f"\n\r{PROMPT}"
            elif len(self._line) < _LONGEST:
                self._line.append(byte)
        return out.encode("ascii", "replace")

    def chirp(self) -> tuple[ChirpConfig, str] | None:
        """Return the configured chirps, and the order of I and Q on the sensor's lanes.

        None where the sensor sends no raw data over LVDS.
        """
        settings = self._settings
        if settings.get("lvdsStreamCfg", [0, 0, 0, 0])[2] != 1:
            return None
        profile, frame = settings["profileCfg"], settings["frameCfg"]
        mask = int(settings["channelCfg"][1])
        device = self._device.removesuffix("L")
        device += "L" if device == "AWR1843" and mask == 0b101 else ""
        order = [mask.bit_length() - 1 for mask in self._transmitters]
        used = None
        if order != sorted(order):  # the chirps begin with another transmitter than the first
            device, used = self._device.removesuffix("L"), tuple(order)
        chirp = ChirpConfig(
            device=device,
            **profile_keys(profile),
            frame_length=int(frame[2]),
            frame_period=frame[4],
            transmitters=used,
        )
        return chirp, "qqii" if settings["adcbufCfg"][2] == 1 else "iiqq"

    def _run(self, line: str) -> str:
        words = line.split()
        if not words:
            return ""
        name, values = words[0], words[1:]
        if name not in _ARGUMENTS:
            return f"'{name}' is not recognized as a CLI command"
        try:
            numbers = [float(value) for value in values]
        except ValueError:
            return _USAGE
        if not all(map(math.isfinite, numbers)):
            return _USAGE
        count = _ARGUMENTS[name]
        if count is not None and len(numbers) != count:
            return _USAGE
        try:
            return self._obey(name, numbers)
        except _RefusedError as refusal:
            return str(refusal)

    def _obey(self, name: str, values: list[float]) -> str:
        if name == "sensorStop":
            if not self.running:
                return "Ignored: Sensor is already stopped\nDone"
            self.running = False
            return "Done"
        if name == "sensorStart":
            return self._start()
        if self.running:
            raise _RefusedError("Error: Sensor is running; stop it first\nError -1")
        if name == "flushCfg":
            self._flush()
        elif name == "chirpCfg":
            self._transmitters.append(int(values[7]))
        elif name == "channelCfg" and int(values[1]) not in self._tx_masks:
            raise _RefusedError("Error: No such transmitters\nError -1")
        elif name == "compRangeBiasAndRxChanPhase":
            device = DEVICES[self._device.removesuffix("L")]
            if len(values) not in (1 + 2 * device.tx * device.rx,):
                raise _RefusedError(_USAGE)
        elif name == "profileCfg" and not 76.0 <= values[1] < 81.0:
            raise _RefusedError("Error: Start frequency is out of range\nError -1")
        self._settings[name] = values
        return "Done"

    def _start(self) -> str:
        if self.running:
            return "Ignored: Sensor is already started\nDone"
        missing = [name for name in _NEEDED if name not in self._settings]
        if missing:
            raise _RefusedError(f"Error: {missing[0]} is missing before sensor start\nError -1")
        mask = int(self._settings["channelCfg"][1])
        if sum(self._transmitters) != mask:
            raise _RefusedError("Error: Chirps and transmitters disagree\nError -1")
        if not self._is_possible():
            raise _RefusedError("Error: The chirps cannot be made\nError -1")
        self.running = True
        self.starts += 1
        return "Done"

    def _is_possible(self) -> bool:
        """Return whether there are samples within their ramp, and chirps within their frame."""
        profile, frame = self._settings["profileCfg"], self._settings["frameCfg"]
        _, _, idle, begin, ramp, _, _, slope, _, samples, rate, *_ = profile
        loops, period_ms = frame[2], frame[4]
        if not (idle >= 0 and begin >= 0 and ramp > 0 and 0 < slope <= 300):
            return False
        if not (2 <= samples <= 4096 and not samples % 2 and 100 <= rate <= 50_000):
            return False
        if not (1 <= loops <= 4096 and loops == int(loops)):
            return False
        if begin + samples / rate * 1e3 > ramp + 0.1:
            return False
        return (idle + ramp) * len(self._transmitters) * loops / 1e3 <= period_ms <= 60_000

    def _flush(self) -> None:
        self._settings.clear()
        self._transmitters.clear()
