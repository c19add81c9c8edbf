"""Lidars that turn evenly, packets of real ones, and what a stream makes of packets."""

from __future__ import annotations

import random
import sqlite3
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.hesai import packets as hesai
from drivers.hesai.driver import HesaiDriver, HesaiFamily
from drivers.hesai.models import MODELS as HESAI
from drivers.kit.driver import Item, Lost, NewStream, Sample, SensorConfig, State
from drivers.kit.lidar.columns import Columns
from drivers.kit.lidar.family import Family, PacketStream
from drivers.kit.lidar.stream import SweepStream
from drivers.velodyne import packets as velodyne
from drivers.velodyne.driver import VelodyneDriver, VelodyneFamily
from drivers.velodyne.models import MODELS as VELODYNE
from recorder.config.options import check_options

START_NS = 1_700_000_000_000_000_000
"""Epoch time of a synthetic lidar's first column."""
NUMBERED = ["Pandar64", "PandarQT64", "PandarXT16", "PandarXT32", "PandarXT32M", "QT128", "OT128"]
NUMBERLESS = ["VLP-16", "Puck Hi-Res", "HDL-32E", "VLP-32C", "VLS-128", "HDL-64E S2", "HDL-64E S3"]
REAL = {
    "hesai_40p": "Pandar40P",
    "hesai_qt64": "PandarQT64",
    "hesai_xt32": "PandarXT32",
    "velodyne_vlp16": "VLP-16",
    "velodyne_vlp32": "VLP-32C",
}
"""Folders of real recordings, and the model of each."""
DUAL = 0x39

Packets = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]


def make_family(model: str, **options: Any) -> Family:
    """Return the family of a model's vendor, of a sensor that is set to the model."""
    hesai_model = model in HESAI
    driver = HesaiDriver if hesai_model else VelodyneDriver
    checked = check_options(driver.options, {"model": model, **options})
    sensor = SensorConfig("lidar", "pcap", "a.pcap", checked)
    return HesaiFamily(sensor) if hesai_model else VelodyneFamily(sensor)


def make_packet(model: str, mode: int = DUAL, rpm: int = 600) -> bytes:
    """Return a model's packet without measurements."""
    if model in HESAI:
        return hesai.make_packet(HESAI[model], mode, rpm)
    return velodyne.make_packet(VELODYNE[model], mode)


@dataclass
class Lidar:
    """A lidar that turns evenly, and measures noise."""

    model: str
    mode: int = DUAL
    seed: int = 0
    rate_hz: float = 10.0
    family: Family = field(init=False)
    decoder: Any = field(init=False)

    def __post_init__(self) -> None:
        self.family = make_family(self.model)
        self.decoder = self.family.make_decoder(make_packet(self.model, self.mode))

    def turn(self, packets: int, start_ns: int = START_NS, azimuth: int = 0) -> Columns:
        """Return the columns of so many packets."""
        decoder, dice = self.decoder, np.random.default_rng(self.seed)
        count = packets * decoder.columns
        number = np.arange(count)
        packet_ns = number // decoder.columns * (decoder.column_ns * decoder.columns)
        first_ns = start_ns + packet_ns // 1000 * 1000  # packets have microseconds
        t_ns = first_ns + (number % decoder.columns) * decoder.column_ns
        step = decoder.turn * decoder.column_ns * self.rate_hz / 1e9
        shape = len(decoder.returns), count, decoder.channels
        few = dice.integers(0, 60_000, (shape[0], 64, shape[2]))  # noise that repeats
        ranges = np.resize(few.swapaxes(0, 1), (count, shape[0], shape[2])).swapaxes(0, 1)
        return Columns(
            azimuth=((azimuth + number * step) % decoder.turn).astype("<u4"),
            t_ns=np.rint(t_ns).astype(np.int64),
            ranges=ranges.astype("<u2"),
            reflectivity=(ranges % 251).astype("u1"),
            confidence=(ranges % 7).astype("u1") if decoder.confidence else None,
            state=self._states(count),
        )

    def _states(self, count: int) -> npt.NDArray[np.uint8] | None:
        if len(self.decoder.states) == 1:
            return None
        if self.model == "QT128" and len(self.decoder.returns) > 1:
            return np.array(np.arange(count) // self.decoder.columns % 2, np.uint8)
        return np.array(np.arange(count) % 2, np.uint8)

    def send(self, columns: Columns, first_number: int = 0) -> tuple[Packets, Times]:
        """Return the packets of columns, and the times at which they are complete."""
        packets = self.decoder.encode(columns, first_number)
        return packets, columns.t_ns[self.decoder.columns - 1 :: self.decoder.columns]

    def start(self, sent: Packets, **options: Any) -> SweepStream:
        """Return a stream that begins with a first packet."""
        stream = make_family(self.model, **options).start(sent[0].tobytes(), live=True)
        assert isinstance(stream, SweepStream)
        return stream


@dataclass
class Account:
    """What a stream has made of packets."""

    samples: list[Sample] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    lost_sweeps: int = 0

    def take(self, items: Iterable[Item | NewStream]) -> None:
        for item in items:
            if isinstance(item, Sample):
                self.samples.append(item)
            elif isinstance(item, Lost):
                self.lost_sweeps += item.count or 0
            elif isinstance(item, State):
                self.states.append(item.values)

    def total(self, name: str) -> int:
        """Return the sum of a count in all states."""
        return sum(state.get(name, 0) for state in self.states)

    def find(self, name: str) -> list[Any]:
        """Return the values of a state's key, in order."""
        return [state[name] for state in self.states if name in state]

    @property
    def times(self) -> Times:
        """Times of the recorded columns, i8 [columns], ns."""
        rows = [np.asarray(sample.data["t_col"])[0].astype(np.int64) for sample in self.samples]
        return np.concatenate([row[row > 0] for row in rows])

    @property
    def columns(self) -> int:
        """Number of recorded columns."""
        return sum(int(np.count_nonzero(sample.data["t_col"])) for sample in self.samples)


def feed(
    stream: PacketStream, packets: Packets, t_ns: Times, batch: int = 64, offset_ns: int = 0
) -> Account:
    """Return what a stream makes of packets, whose arrival is `t_ns`, by a host that is ahead."""
    account = Account()
    for at in range(0, len(packets), batch):
        part = slice(at, at + batch)
        account.take(stream.take(packets[part], t_ns[part], t_ns[part] + offset_ns))
    account.take(stream.finish())
    return account


def read_real(data: Path, folder: str) -> tuple[Packets, Times]:
    """Return the packets of a real recording and their stamps, from its bag."""
    path = data / "lidar" / folder / "packets.db3"
    payloads, stamps = [], []
    with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as database:
        (kind,) = database.execute("select type from topics").fetchone()
        hesai_bag = "Pandar" in kind
        size = 1512 if hesai_bag else 1216
        for (message,) in database.execute("select data from messages order by id"):
            at = 16 + struct.unpack_from("<I", message, 12)[0]
            at = 4 + (at - 1) // 4 * 4  # after the padding behind the frame's name
            (count,) = struct.unpack_from("<I", message, at)
            for record in range(count):
                begin = at + 4 + record * size
                seconds, nanos = struct.unpack_from("<iI", message, begin)
                length = struct.unpack_from("<I", message, begin + 1508)[0] if hesai_bag else 1206
                payloads.append(message[begin + 8 : begin + 8 + length])
                stamps.append(seconds * 10**9 + nanos)
    return np.frombuffer(b"".join(payloads), np.uint8).reshape(len(stamps), -1), np.array(stamps)


def hold_up(dice: random.Random, times: Times) -> Times:
    """When packets arrive that a network holds up for a while, twice at most; i8 [packets], ns."""
    for _ in range(dice.randrange(3)):
        begin_ns = int(dice.choice(times.tolist()))
        end_ns = begin_ns + dice.choice([15, 70, 250]) * 1_000_000
        times = np.where((times >= begin_ns) & (times < end_ns), end_ns, times)
    return times
