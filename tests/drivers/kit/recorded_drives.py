"""Recordings by the package ``mcap`` with what recorders and clocks do to them."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.formats.bags.kit import SECOND, START_NS, Sent, compressed, imu, jpeg, write_bag

MS = 1_000_000
IMU, CAMERA = "/imu/data", "/camera/image"
_PERIOD_NS = {IMU: 10 * MS, CAMERA: 70 * MS}
_LATENCY_NS = {IMU: 1 * MS, CAMERA: 20 * MS}
LAYOUTS = ("one file", "by topic", "split", "two writers", "named backwards")


@dataclass(frozen=True)
class Drive:
    """What happens while a recording is made.

    Attributes:
        seed: of the delays.
        length_s: of the recording.
        late: share of the messages that arrive late.
        delay_ms: of late messages, at most.
        publishers: of the IMU's topic; the second one is 30 ms later than the first.
        steps: when the recorder's clock is set back, in s, and by how much, in ms.
        pause_s: the recording pauses for so long, in the middle.
        layout: how messages are written into files; see `LAYOUTS`.
        untimed: number of messages whose log time and stamp are 0, at the beginning.
        chunk_bytes: of the files' chunks.
    """

    seed: int = 0
    length_s: float = 1.5
    late: float = 0.0
    delay_ms: int = 200
    publishers: int = 1
    steps: Sequence[tuple[float, int]] = ()
    pause_s: int = 0
    layout: str = "one file"
    untimed: int = 0
    chunk_bytes: int = 4000


@dataclass
class Written:
    """A recording, and what it should be read as.

    Attributes:
        path: of the bag.
        stamps: by topic, stamps in the order of measurement, as they are in the messages.
        true: by topic, times of measurement on a clock without steps, in the same order.
        steps: by topic, how many steps of the clock there were before the measurement.
    """

    path: Path
    stamps: dict[str, list[int]] = field(default_factory=dict)
    true: dict[str, list[int]] = field(default_factory=dict)
    steps: dict[str, list[int]] = field(default_factory=dict)


_ACC_AT = imu(IMU, START_NS, (0.1, 0, 0), (0, 0, 0)).data.index(struct.pack("<d", 0.1))


@cache
def _template(topic: str) -> Sent:
    if topic == IMU:
        return imu(topic, START_NS, (0, 0, 0), (0, 0, 0))
    return compressed(topic, jpeg(0), START_NS)


def message(topic: str, log_ns: int, stamp_ns: int, number: int = 0) -> Sent:
    """A message with a stamp in its header, which is at byte 4 of CDR; of an IMU with a number."""
    made = _template(topic)
    stamp = struct.pack("<iI", stamp_ns // SECOND, stamp_ns % SECOND)
    data = made.data[:4] + stamp + made.data[12:]
    if topic == IMU:  # the number is the acceleration in x
        data = data[:_ACC_AT] + struct.pack("<d", number) + data[_ACC_AT + 8 :]
    return Sent(topic, made.schema, made.encoding, data, log_ns, made.schema_data)


def write_drive(folder: Path, drive: Drive) -> Written:
    """Write a recording of a drive."""
    rng = random.Random(drive.seed)
    measured: list[tuple[int, int, str]] = []  # receipt, measurement, topic
    for topic, period_ns in _PERIOD_NS.items():
        for publisher in range(drive.publishers if topic == IMU else 1):
            for n in range(int(drive.length_s * SECOND / period_ns)):
                t_ns = n * period_ns + publisher * 3_333_333
                delay_ns = _LATENCY_NS[topic] + publisher * 30 * MS + rng.randrange(MS // 4)
                if rng.random() < drive.late:
                    delay_ns += rng.randrange(drive.delay_ms * MS)
                measured.append((t_ns + delay_ns, t_ns, topic))
    middle_ns = int(drive.length_s * SECOND / 2)

    def clock(t_ns: int) -> int:
        back = sum(ms * MS for at_s, ms in drive.steps if t_ns >= at_s * SECOND)
        return START_NS + t_ns - back + (drive.pause_s * SECOND if t_ns >= middle_ns else 0)

    measured = [(r, t, topic) for r, t, topic in measured if (r < middle_ns) == (t < middle_ns)]
    written = Written(folder)
    numbers: dict[tuple[int, str], int] = {}
    for _, t_ns, topic in sorted(measured, key=lambda each: each[1]):
        numbers[t_ns, topic] = len(written.stamps.get(topic, ()))
        steps = sum(t_ns >= at_s * SECOND for at_s, _ in drive.steps)
        written.steps.setdefault(topic, []).append(steps)
        written.stamps.setdefault(topic, []).append(clock(t_ns))
        pause_ns = drive.pause_s * SECOND if t_ns >= middle_ns else 0
        written.true.setdefault(topic, []).append(t_ns + pause_ns)
    measured.sort()
    sent = [message(topic, 0, 0) for topic in (IMU, CAMERA) for _ in range(drive.untimed)]
    sent += [message(topic, clock(r), clock(t), numbers[t, topic]) for r, t, topic in measured]
    write_bag(folder, _parts(sent, drive.layout, rng), chunk_size=drive.chunk_bytes)
    return written


def _parts(sent: list[Sent], layout: str, rng: random.Random) -> list[list[Sent]]:
    third = len(sent) // 3
    match layout:
        case "by topic":
            return [[each for topic in (CAMERA, IMU) for each in sent if each.topic == topic]]
        case "split":
            return [sent[:third], sent[third : 2 * third], sent[2 * third :]]
        case "two writers":
            sides = [rng.randrange(2) for _ in sent]
            return [[s for s, at in zip(sent, sides, strict=True) if at == n] for n in (0, 1)]
        case "named backwards":
            return [sent[2 * third :], sent[third : 2 * third], sent[:third]]
        case _:
            return [sent]
