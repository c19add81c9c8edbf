"""Faults that emulated devices inject on request.

On the command line: ``SENSOR.KIND[=VALUE][@AT[+DURATION]]``::

    lidar.loss=0.01          one packet in a hundred, all the time
    radar.loss=20x@5         twenty packets from second 5 on
    imu.unplug@10+4          absent from second 10 to 14
    lidar.clock_jump=-2.5@8  the device's clock goes back by 2.5 s at second 8
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recorder.common.errors import UsageError
from recorder.config.options import suggest

PACKET_KINDS = ("loss", "reorder", "duplicate", "corrupt")
"""Faults of single packets: a share of them, or a number."""
DEVICE_KINDS = ("stall", "reboot", "unplug", "clock_jump")
"""Faults of the whole device, at a time."""

_FORM = re.compile(
    r"(?P<sensor>[a-z][a-z0-9_]*)\.(?P<kind>[a-z_]+)(=(?P<value>[-+0-9.e]+)(?P<times>x)?)?"
    r"(@(?P<at>[0-9.]+)(\+(?P<duration>[0-9.]+))?)?"
)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: one of `PACKET_KINDS` or `DEVICE_KINDS`.
        at_s: when, in seconds from the device's first packet.
        duration_s: how long; 0 for a packet fault with a rate: without end.
        count: number of consecutive packets; used if `rate` is 0.
        rate: share of the packets.
        value: seconds by which a clock jumps.
    """

    kind: str
    at_s: float = 0.0
    duration_s: float = 0.0
    count: int = 1
    rate: float = 0.0
    value: float = 0.0

    def is_active(self, t_s: float) -> bool:
        """Return whether the fault is active at a time."""
        return t_s >= self.at_s and (not self.duration_s or t_s < self.at_s + self.duration_s)


def parse_fault(text: str) -> tuple[str, Fault]:
    """Parse a command line's text into the sensor and the fault; see the module.

    Raises:
        UsageError: the text is malformed.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        form = "SENSOR.KIND[=VALUE][@AT[+DURATION]]"
        raise UsageError(f"--fault: {text!r} is not of the form {form}")
    kind, known = match["kind"], PACKET_KINDS + DEVICE_KINDS
    if kind not in known:
        raise UsageError(
            f"--fault: {text!r}: unknown fault {kind!r}{suggest(kind, known)}; "
            f"the faults are {', '.join(known)}"
        )
    try:
        at_s, duration_s = float(match["at"] or 0), float(match["duration"] or 0)
        value = float(match["value"] or 0)
    except ValueError as error:
        raise UsageError(f"--fault: {text!r}: {error}") from None
    fault = Fault(kind, at_s, duration_s)
    if kind in PACKET_KINDS:
        if match["times"]:
            if value != int(value) or value < 1:
                raise UsageError(f"--fault: {text!r}: {match['value']} is not a number of packets")
            return match["sensor"], Fault(kind, at_s, duration_s, count=int(value))
        if match["value"] is None:
            return match["sensor"], fault
        if not 0 < value <= 1:
            raise UsageError(
                f"--fault: {text!r}: a share of packets is between 0 and 1; a number of packets "
                "ends with x"
            )
        return match["sensor"], Fault(kind, at_s, duration_s, rate=value)
    if match["times"] or (kind != "clock_jump" and match["value"] is not None):
        raise UsageError(f"--fault: {text!r}: {kind} does not take this value")
    if kind == "clock_jump":
        if not value:
            raise UsageError(f"--fault: {text!r}: needs the seconds, as in {kind}=-2.5@8")
        return match["sensor"], Fault(kind, at_s, value=value)
    if not duration_s:
        raise UsageError(f"--fault: {text!r}: needs time and duration, as in {kind}@5+2")
    return match["sensor"], fault


class PacketFaults:
    """Seeded injector of lost, repeated, damaged and reordered packets.

    At most one fault hits a packet; a reordered packet is sent after its successor.

    >>> faults = PacketFaults([Fault("loss", count=2)], seed=1)
    >>> [faults.apply(k * 0.1, bytes([k])) for k in range(3)]
    [[], [], [b'\\x02']]

    Args:
        faults: faults of other kinds are ignored, because the device implements them.
        seed: the same seed and the same packets give the same faults.

    Attributes:
        injected: number of packets hit, by kind.
    """

    def __init__(self, faults: Iterable[Fault], seed: int) -> None:
        self._faults: Sequence[Fault] = [f for f in faults if f.kind in PACKET_KINDS]
        self._left = [0 if fault.rate else fault.count for fault in self._faults]
        # One generator per fault, so that a fault does not change the choices of another.
        self._random = [random.Random(f"{seed} {k}") for k in range(len(self._faults))]
        self._held: list[bytes] = []
        self.injected: Counter[str] = Counter()

    def apply(self, t_s: float, packet: bytes) -> list[bytes]:
        """Return the packets to send instead: none, it, it twice, or two in the wrong order.

        Args:
            t_s: seconds from the device's first packet.
            packet: as the device would send it.
        """
        number = self._hit(t_s)
        kind = None if number is None else self._faults[number].kind
        if kind is not None:
            self.injected[kind] += 1
        if kind == "reorder":
            self._held.append(packet)
            return []
        sent = [packet]
        if kind == "loss":
            sent = []
        elif kind == "duplicate":
            sent = [packet, packet]
        elif number is not None and kind == "corrupt":
            sent = [_damage(packet, self._random[number])]
        if self._held and kind != "loss":
            sent += self._held
            self._held = []
        return sent

    def flush(self) -> list[bytes]:
        """Return the packets that are still held back at the end."""
        held, self._held = self._held, []
        return held

    def _hit(self, t_s: float) -> int | None:
        """Return the fault that hits the next packet."""
        hit = None
        for number, fault in enumerate(self._faults):
            left = self._left[number]
            chosen = self._random[number].random() < fault.rate if fault.rate else left > 0
            if hit is None and chosen and fault.is_active(t_s):
                hit = number
                self._left[number] -= 0 if fault.rate else 1
        return hit


def _damage(packet: bytes, source: random.Random) -> bytes:
    damaged = bytearray(packet)
    damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
    return bytes(damaged)
