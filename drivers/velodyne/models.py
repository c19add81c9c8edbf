"""Table of Velodyne's models: arrangement of a packet's blocks, and firing times of the lasers.

Sources: Velodyne's manuals, as velodyne-decoder and tier4/nebula (nebula_decoders_velodyne) read
them.  A further model is one more row of `MODELS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PACKET_BYTES: Final = 1206
BLOCKS: Final = 12
LASERS: Final = 32
"""Measurements of a block."""
BANKS: Final = (0xEEFF, 0xDDFF, 0xCCFF, 0xBBFF)
"""Marks of the blocks of a column, in order."""


@dataclass(frozen=True, slots=True)
class Model:
    """Arrangement of a model's packets.

    Attributes:
        name: name of the model in configs and in ``beams.json``.
        product: number in the packets; None: they have the device's status instead of return mode
            and product, and the model must be configured.
        channels: lasers that fire in a column.
        unit_mm: unit of the distances, mm.
        column_us: interval of columns, us.
        begin_us: time of a packet's first column after the packet's time, us.
        firing_us: time of each laser after its column, us.
        rise_mm: height by which a beam begins lower with the tangent of its elevation, mm.
        seen: packets of a real device were tried.

    A block has two columns of 16 lasers, one of 32, or a part of one of 64 or 128.
    """

    name: str
    product: int | None
    channels: int
    unit_mm: float
    column_us: float
    firing_us: tuple[float, ...]
    begin_us: float = 0.0
    rise_mm: float = 0.0
    seen: bool = False

    @property
    def banks(self) -> int:
        """Blocks of a column."""
        return max(1, self.channels // LASERS)


_16: Final = tuple(2.304 * laser for laser in range(16))
# Lasers of the HDL-64E fire in fours; those of its two banks fire together.
_64_S2: Final = tuple(
    6.0 * (laser % 32 // 4) + (0.0, 1.26, 2.46, 3.66)[laser % 4] for laser in range(64)
)
_64_S3: Final = tuple(
    7.2 * (laser % 32 // 4) + (0.0, 1.3, 2.5, 3.7)[laser % 4] for laser in range(64)
)

MODELS: Final[Mapping[str, Model]] = {
    model.name: model
    for model in (
        Model("VLP-16", 0x22, 16, 2.0, 55.296, _16, rise_mm=41.9, seen=True),
        Model("Puck Hi-Res", 0x24, 16, 2.0, 55.296, _16, rise_mm=41.9),
        Model("HDL-32E", 0x21, 32, 2.0, 46.08, tuple(1.152 * laser for laser in range(32))),
        Model(
            *("VLP-32C", 0x28, 32, 4.0, 55.296),
            tuple(2.304 * (laser // 2) for laser in range(32)),
            rise_mm=42.4,
            seen=True,
        ),
        Model(
            *("VLS-128", 0xA1, 128, 4.0, 53.3),
            tuple(2.665 * (laser // 8 + laser // 64) for laser in range(128)),
            begin_us=-8.7,
        ),
        Model("HDL-64E S2", None, 64, 2.0, 48.0, _64_S2),
        Model("HDL-64E S3", None, 64, 2.0, 57.6, _64_S3),
    )
}
