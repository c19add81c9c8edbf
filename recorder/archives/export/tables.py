"""Export of a stream as CSV (RFC 4180, but with line feeds): a row for each sample.

Columns are ``ts (s)`` with all nine decimals of the stamp, ``seq``, ``t_dev (ns)``, and the values
of the channels.  A value of an array has its place in its name, as in ``acc[0] (m/s^2)``.  Numbers
have the digits that identify the value in the channel's type.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.archives.export.chosen import Block, Damage, read_blocks
from recorder.common.errors import UsageError
from recorder.session.playback import find_unit
from recorder.session.stream import Stream

MOST_VALUES: Final = 64
"""Largest number of values that a sample of a channel may have."""
_NUMBERS: Final = {"seq": "seq", "t_dev": "t_dev (ns)"}
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def table_channels(stream: Stream, asked: Sequence[str] | None) -> list[str]:
    """Return names of the channels of a table; UsageError if a requested one has too many values.

    Args:
        stream: the stream.
        asked: names of channels; None: all of few values.
    """
    sizes = {name: math.prod(stream.meta[name]["shape"]) for name in stream.data_channels}
    if asked is None:
        return [name for name, size in sizes.items() if size <= MOST_VALUES]
    for name in asked:
        if sizes.get(name, 0) > MOST_VALUES:
            raise UsageError(
                f"{stream.name}: {name} has {sizes[name]} values a sample; a table holds channels "
                f"of up to {MOST_VALUES}; export it with --to npz"
            )
    return [name for name in asked if name in sizes]


def write_table(
    path: Path,
    stream: Stream,
    indices: range,
    channels: Sequence[str],
    damage: Damage,
    advance: Callable[[int], None],
) -> int:
    """Write a table; return the number of its rows.

    Args:
        path: of the file.
        stream: the stream.
        indices: of the samples.
        channels: names of the channels, from `table_channels`.
        damage: receives the samples that are left out.
        advance: called with the number of samples done.
    """
    numbers = [name for name in _NUMBERS if name in stream.meta]
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        header = csv.writer(file, lineterminator="\n")
        header.writerow(map(_escape_title, _format_titles(stream, numbers, channels)))
        for block in read_blocks(stream, indices, [*numbers, *channels], damage):
            file.writelines(_format_lines(block))
            rows += len(block.indices)
            advance(len(block.indices))
    return rows


def _format_titles(
    stream: Stream, numbers: Sequence[str], channels: Sequence[str]
) -> Iterator[str]:
    if stream.has_times:
        yield "ts (s)"
    yield from (_NUMBERS[name] for name in numbers)
    for name in channels:
        unit = find_unit(stream, name)
        entry = stream.meta[name]
        parts = (".re", ".im") if np.dtype(entry["type"]).kind == "c" else ("",)
        for place in itertools.product(*map(range, entry["shape"])):
            at = "".join(f"[{k}]" for k in place)
            yield from (f"{name}{at}{part}" + (f" ({unit})" if unit else "") for part in parts)


def _format_lines(block: Block) -> Iterator[str]:
    count = len(block.indices)
    columns = [_format_values(values, count) for values in block.data.values()]
    if block.t_ns is not None:
        stamps = [f"{Decimal(t_ns).scaleb(-9):.9f}" for t_ns in block.t_ns.tolist()]
        columns.insert(0, np.array(stamps).reshape(count, 1))
    rows = np.concatenate(columns, axis=1).tolist() if columns else [[]] * count
    return (",".join(row) + "\n" for row in rows)


def _format_values(values: npt.NDArray[Any], count: int) -> npt.NDArray[np.str_]:
    """Format values [n, *shape] as texts [n, columns], with as few digits as are needed."""
    if values.dtype.kind == "c":
        values = values.view(values.real.dtype)
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    return values.reshape(count, -1).astype(np.str_)


def _escape_title(title: str) -> str:
    """Return a title that no spreadsheet reads as a formula."""
    return f"'{title}" if title.startswith(_FORMULA) else title
