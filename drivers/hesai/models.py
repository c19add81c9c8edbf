"""Table of Hesai's models: layouts of their packets, and firing times of their channels.

Sources: Hesai's manuals, as HesaiLidar_SDK_2.0 and tier4/nebula (nebula_decoders_hesai) read them;
the files ``firing_MODEL.csv`` have the firing times of Hesai's own files.  A further model of a
family is one more row of `MODELS`.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GroupTime = Callable[[int, int], float]
"""Time of a block after its packet's time, us, by its number and the number of returns."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Places of a packet's fields behind the blocks, as offsets from the packet's begin.

    Attributes:
        mode: return mode, u1.
        speed: motor speed, rpm, u2.
        date: year, month, day, hour, minute, second, u1 each; for `seconds`, 0 and 5 bytes of
            seconds since 1970, big-endian.
        micros: microseconds, u4.
        sequence: number of the packet, u4; packets that are too short have none.
        flag: mode flag, whose lowest bit tells QT128's firing loop, u1; 0: none.
        azimuth_state: OT128's 2 bits for each block, from the highest down, u2; 0: none.
        operational_state: OT128's, u1; 0: none.
        shutdown: 1 once a high temperature shut the lasers off, u1; 0: none.
        safety: the functional safety's version, u1, the lidar's state in 3 bits, the fault's type
            in 2 and a counter in 3, u1, how many faults there are in 4 and which of them this is in
            4, u1, and its code, u2; 0: none.
        seconds: see `date`.
    """

    mode: int
    speed: int
    date: int
    micros: int
    sequence: int
    flag: int = 0
    azimuth_state: int = 0
    operational_state: int = 0
    shutdown: int = 0
    safety: int = 0
    seconds: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """Layout of a model's packets.

    Attributes:
        name: name of the model in configs and in ``beams.json``.
        version: protocol version in the header; None: the header has none.
        sizes: lengths of the packets, bytes.
        header: length of the header, bytes.
        blocks, channels: blocks of a packet, channels of a block.
        unit_mm: unit of the distances, mm; None: in the header.
        tail: places of the other fields.
        group_us: see `GroupTime`.
        firing_us: time of each channel after its block, us; empty: in ``firing_NAME.csv``, by the
            state of the column; see `read_firing_us`.
        range_m: least and most distance by the manual, m.
        flag_bytes: length of the mark ``FF EE`` before a block's azimuth.
        fine: the azimuth is followed by 1/256 of its unit, u1.
        confidence: reflectivity is followed by a confidence, u1.
        seen: packets of a real device were tried.
        mirrors: turning mirrors, each of which makes a sweep; 1: the lidar itself turns.
        rpm: usual speed.
        crcs: begin and end of the bytes that have a CRC behind them; see `drivers.hesai.crc`.
    """

    name: str
    version: tuple[int, int] | None
    sizes: tuple[int, ...]
    header: int
    blocks: int
    channels: int
    unit_mm: float | None
    tail: Tail
    group_us: GroupTime
    firing_us: tuple[float, ...]
    range_m: tuple[float, float]
    flag_bytes: int = 0
    fine: bool = False
    confidence: bool = False
    seen: bool = False
    crcs: tuple[tuple[int, int], ...] = ()
    mirrors: int = 1
    rpm: int = 600


def _step(first: float, step: float, blocks: int) -> GroupTime:
    """Return the times of blocks whose groups follow one another, the last at `first`."""
    return lambda block, returns: first - step * ((blocks - 1 - block) // returns)


def _even(first: float, step: float, channels: int, period: int) -> tuple[float, ...]:
    return tuple(first + step * (channel % period) for channel in range(channels))


_40P: Final = (
    *(-42.22, -28.47, -16.04, -3.62, -45.49, -31.74, -47.46, -54.67, -20.62, -33.71),
    *(-40.91, -8.19, -20.62, -27.16, -50.73, -8.19, -14.74, -36.98, -45.49, -52.70),
    *(-23.89, -31.74, -38.95, -11.47, -18.65, -25.19, -48.76, -6.23, -12.77, -35.01),
    *(-21.92, -9.50, -43.52, -29.77, -17.35, -4.92, -42.22, -28.47, -16.04, -3.62),
)
_64: Final = (
    *(-23.18, -21.876, -20.572, -19.268, -17.964, -16.66, -11.444, -46.796),
    *(-7.532, -36.956, -50.732, -54.668, -40.892, -44.828, -31.052, -34.988),
    *(-48.764, -52.7, -38.924, -42.86, -29.084, -33.02, -46.796, -25.148),
    *(-36.956, -50.732, -27.116, -40.892, -44.828, -31.052, -34.988, -48.764),
    *(-25.148, -38.924, -42.86, -29.084, -33.02, -52.7, -6.228, -54.668),
    *(-15.356, -27.116, -10.14, -23.18, -4.924, -21.876, -14.052, -17.964),
    *(-8.836, -19.268, -3.62, -20.572, -12.748, -16.66, -7.532, -11.444),
    *(-6.228, -15.356, -10.14, -4.924, -3.62, -14.052, -8.836, -12.748),
)
_QT64: Final = (
    *(12.31, 14.37, 16.43, 18.49, 20.54, 22.60, 24.66, 26.71),
    *(29.16, 31.22, 33.28, 35.34, 37.39, 39.45, 41.50, 43.56),
    *(46.61, 48.67, 50.73, 52.78, 54.84, 56.90, 58.95, 61.01),
    *(63.45, 65.52, 67.58, 69.63, 71.69, 73.74, 75.80, 77.86),
    *(80.90, 82.97, 85.02, 87.08, 89.14, 91.19, 93.25, 95.30),
    *(97.75, 99.82, 101.87, 103.93, 105.98, 108.04, 110.10, 112.15),
    *(115.20, 117.26, 119.32, 121.38, 123.43, 125.49, 127.54, 129.60),
    *(132.05, 134.11, 136.17, 138.22, 140.28, 142.34, 144.39, 146.45),
)
_XT: Final = Tail(mode=550, speed=551, date=553, micros=559, sequence=564)


def _move(tail: Tail, by: int) -> Tail:
    return Tail(
        tail.mode + by, tail.speed + by, tail.date + by, tail.micros + by, tail.sequence + by
    )


MODELS: Final[Mapping[str, Model]] = {
    model.name: model
    for model in (
        Model(
            *("Pandar40P", None, (1262, 1266), 0, 10, 40, 4.0),
            Tail(mode=1254, speed=1248, date=1256, micros=1250, sequence=1262, shutdown=1245),
            *(_step(-28.58, 55.56, 10), _40P, (0.3, 200.0)),
            flag_bytes=2,
            seen=True,
        ),
        Model(
            *("Pandar64", None, (1194, 1198), 8, 6, 64, None),
            Tail(mode=1186, speed=1180, date=1188, micros=1182, sequence=1194, shutdown=1177),
            *(_step(-42.58, 55.56, 6), _64, (0.3, 200.0)),
            seen=True,
        ),
        Model(
            *("PandarQT64", (3, 1), (1072,), 12, 4, 64, None),
            Tail(mode=1060, speed=1054, date=1062, micros=1056, sequence=1068),
            *(lambda block, returns: 25.71 + 166.667 * (block // returns), _QT64, (0.1, 60.0)),
            confidence=True,
            seen=True,
        ),
        Model(
            *("PandarXT16", (6, 1), (568,), 12, 8, 16, None, _XT),
            *(_step(5.632, 50.0, 8), _even(0.368, 3.024, 16, 16), (0.05, 120.0)),
            confidence=True,
            seen=True,
        ),
        Model(
            *("PandarXT32", (6, 1), (1080,), 12, 8, 32, None, _move(_XT, 512)),
            *(_step(5.632, 50.0, 8), _even(0.368, 1.512, 32, 32), (0.05, 120.0)),
            confidence=True,
            seen=True,
        ),
        Model(
            *("PandarXT32M", (6, 1), (820,), 12, 6, 32, None, _move(_XT, 252)),
            *(_step(5.632, 50.0, 6), _even(0.368, 2.888, 32, 16), (0.5, 300.0)),
            confidence=True,
            seen=True,
        ),
        Model(
            *("QT128", (3, 2), (1127,), 12, 2, 128, None),
            Tail(*(1073, 1074, 1076, 1082, 1087), flag=1066, safety=1044),
            *(lambda block, returns: 9.0 + 111.11 * (block // returns), (), (0.3, 50.0)),
            confidence=True,
            crcs=((12, 1040), (1061, 1091)),
            seen=True,
        ),
        Model(
            *("OT128", (1, 4), (861, 893), 12, 2, 128, None),
            Tail(
                *(817, 818, 820, 826, 831),
                azimuth_state=814,
                operational_state=816,
                safety=788,
            ),
            *(_step(43.346, 55.556, 2), (), (0.1, 230.0)),
            crcs=((12, 784), (805, 857)),
        ),
        Model(
            *("AT128", (4, 3), (1118,), 12, 2, 128, None),
            Tail(mode=1070, speed=1064, date=1072, micros=1066, sequence=1078, seconds=True),
            *(_step(-50.915, 41.666, 2), (), (1.0, 180.0)),
            fine=True,
            confidence=True,
            crcs=((12, 1042), (1046, 1082)),
            mirrors=3,
            rpm=200,
        ),
    )
}


@functools.cache
def read_firing_us(model: Model) -> Mapping[int, tuple[float | None, ...]]:
    """Return the firing times of a model's channels by the state of a column, us.

    None: the channel does not fire in this state.
    """
    if model.firing_us:
        return {0: model.firing_us}
    with Path(__file__).with_name(f"firing_{model.name}.csv").open(newline="") as file:
        names, *rows = csv.reader(file)
    columns = list(zip(*rows, strict=True))[1:]
    return {
        int(name): tuple(float(text) if text else None for text in column)
        for name, column in zip(names[1:], columns, strict=True)
    }
