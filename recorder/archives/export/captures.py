"""Export of datagrams as a network capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.archives.export.chosen import Damage
from recorder.common.errors import RecorderError
from recorder.formats.pcap.writer import PcapWriter
from recorder.perception.stream_contents import PAYLOAD, destination_of
from recorder.session.stream import Stream

_BLOCK: Final = 1024
_NUMBERS: Final = ("source", "source_port", "port")

_Block = tuple[npt.NDArray[np.int64], list[bytes], dict[str, npt.NDArray[Any]]]


def write_capture(
    path: Path, stream: Stream, indices: range, damage: Damage, advance: Callable[[float], None]
) -> int:
    """Write datagrams as pcap, with their stamps in epoch ns.

    Args:
        path: of the file.
        stream: one of datagrams, with times.
        indices: of the samples, rising.
        damage: receives the samples that are left out.
        advance: called with the number of samples done.

    Returns:
        the number of written datagrams.
    """
    destination, count = destination_of(stream), 0
    with path.open("wb", buffering=1 << 20) as file:
        writer = PcapWriter(file)
        for at in range(0, len(indices), _BLOCK):
            block = indices[at : at + _BLOCK]
            for index, (times, payloads, numbers) in _read(stream, block, damage):
                sources = numbers["source"].tobytes()
                ports = zip(numbers["source_port"].tolist(), numbers["port"].tolist(), strict=True)
                rows = zip(times.tolist(), payloads, ports, strict=True)
                for k, (t_ns, payload, (source_port, port)) in enumerate(rows):
                    source = sources[16 * k : 16 * k + 16]
                    try:
                        writer.write(t_ns, source, source_port, destination, port, payload)
                    except RecorderError as error:
                        damage.add(index + k, error)
                        continue
                    count += 1
            advance(len(block))
    return count


def _read(stream: Stream, block: range, damage: Damage) -> Iterator[tuple[int, _Block]]:
    """Yield parts of a block of samples, each with the index of its first sample."""
    if block.step == 1:
        try:
            yield block.start, _read_range(stream, block.start, block.stop)
            return
        except (RecorderError, OSError):
            pass  # sample by sample, to find the damaged ones
    for index in block:
        try:
            part = _read_range(stream, index, index + 1)
        except (RecorderError, OSError) as error:
            damage.add(index, error)
            continue
        yield index, part


def _read_range(stream: Stream, start: int, stop: int) -> _Block:
    payloads = stream.channels[PAYLOAD].encoded_range(start, stop)
    numbers = {name: stream.channels[name].read(start, stop) for name in _NUMBERS}
    return stream.times(start, stop), payloads, numbers
