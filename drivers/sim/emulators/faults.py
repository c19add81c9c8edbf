"""Faults that emulated devices have on request.

On the command line: ``SENSOR.KIND[=VALUE][@AT[+DURATION]]``::

    lidar.loss=0.01          one packet in a hundred, all the time
    radar.loss=20x@5         twenty packets from second 5 on
    imu.unplug@10+4          gone from second 10 to 14
    lidar.clock_jump=-2.5@8  the device's clock goes back by 2.5 s at second 8
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recorder.contract.config.options import suggest
from recorder.contract.errors import UsageError

PACKET_KINDS = ("loss", "reorder", "duplicate", "corrupt")
"""Hit single packets: a share of them, or so many."""
DEVICE_KINDS = ("stall", "reboot", "unplug", "clock_jump")
"""Hit the device at a time."""

_FORM = re.compile(
    r"(?P<sensor>[a-z][a-z0-9_]*)\.(?P<kind>[a-z_]+)(=(?P<value>[-+0-9.e]+)(?P<times>x)?)?"
    r"(@(?P<at>[0-9.]+)(\+(?P<duration>[0-9.]+))?)?"
)


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        kind: of `PACKET_KINDS` or `DEVICE_KINDS`.
        at_s: when, in seconds from the device's first packet.
        duration_s: how long; 0 of a packet fault with a rate: for ever.
        count: so many packets, in a row; where `rate` is 0.
        rate: share of the packets.
        value: seconds that a clock jumps.
    """

    kind: str
    at_s: float = 0.0
    duration_s: float = 0.0
    count: int = 1
    rate: float = 0.0
    value: float = 0.0

    def during(self, t_s: float) -> bool:
        """Whether the fault lasts at a time."""
        return t_s >= self.at_s and (not self.duration_s or t_s < self.at_s + self.duration_s)


def parse_fault(text: str) -> tuple[str, Fault]:
    """The sensor and the fault that a command line's text names; see the module.

    Raises:
        UsageError: it is not of that form.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        form = "SENSOR.KIND[=VALUE][@AT[+DURATION]]"
        raise UsageError(f"--fault: {text!r} is not of the form {form}")
    kind, known = match["kind"], PACKET_KINDS + DEVICE_KINDS
    if kind not in known:
        raise UsageError(
            f"--fault: {text!r}: there is no fault {kind!r}{suggest(kind, known)}; "
            f"there are {', '.join(known)}"
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
                raise UsageError(f"--fault: {text!r}: {match['value']} is no number of packets")
            return match["sensor"], Fault(kind, at_s, duration_s, count=int(value))
        if match["value"] is None:
            return match["sensor"], fault
        if not 0 < value <= 1:
            raise UsageError(
                f"--fault: {text!r}: a share of the packets is between 0 and 1, a number of them "
                "ends in x"
            )
        return match["sensor"], Fault(kind, at_s, duration_s, rate=value)
    if match["times"] or (kind != "clock_jump" and match["value"] is not None):
        raise UsageError(f"--fault: {text!r}: {kind} takes no such value")
    if kind == "clock_jump":
        if not value:
            raise UsageError(f"--fault: {text!r}: say by how many seconds, as in {kind}=-2.5@8")
        return match["sensor"], Fault(kind, at_s, value=value)
    if not duration_s:
        raise UsageError(f"--fault: {text!r}: say when and how long, as in {kind}@5+2")
    return match["sensor"], fault


class PacketFaults:
    """Loses, repeats, damages and reorders packets, seeded.

    A packet is hit by one fault at the most; one that is reordered comes after its successor.

    >>> faults = PacketFaults([Fault("loss", count=2)], seed=1)
    >>> [faults.apply(k * 0.1, bytes([k])) for k in range(3)]
    [[], [], [b'\\x02']]

    Args:
        faults: those of other kinds are left to the device.
        seed: same seed and same packets: same faults.

    Attributes:
        injected: packets hit so far, by kind.
    """

    def __init__(self, faults: Iterable[Fault], seed: int) -> None:
        self._faults: Sequence[Fault] = [f for f in faults if f.kind in PACKET_KINDS]
        self._left = [0 if fault.rate else fault.count for fault in self._faults]
        # A generator each: one fault does not move those of another.
        self._random = [random.Random(f"{seed} {k}") for k in range(len(self._faults))]
        self._held: list[bytes] = []
        self.injected: Counter[str] = Counter()

    def apply(self, t_s: float, packet: bytes) -> list[bytes]:
        """What is sent in a packet's place: nothing, it, it twice, or two in the wrong order.

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
            sent = [_damaged(packet, self._random[number])]
        if self._held and kind != "loss":
            sent += self._held
            self._held = []
        return sent

    def flush(self) -> list[bytes]:
        """What is held back still, at the end."""
        held, self._held = self._held, []
        return held

    def _hit(self, t_s: float) -> int | None:
        """The fault that hits the next packet."""
        hit = None
        for number, fault in enumerate(self._faults):
            left = self._left[number]
            chosen = self._random[number].random() < fault.rate if fault.rate else left > 0
            if hit is None and chosen and fault.during(t_s):
                hit = number
                self._left[number] -= 0 if fault.rate else 1
        return hit


def _damaged(packet: bytes, source: random.Random) -> bytes:
    damaged = bytearray(packet)
    damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
    return bytes(damaged)
