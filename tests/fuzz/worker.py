"""One target in a process of its own, for some seconds: ``python -m tests.fuzz.worker``.

The input that is tried lies in a file that the campaign has mapped too: it outlives a crash of the
interpreter, and shows a hang.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.drivers.fuzzing import mutated, resident
from tests.fuzz.targets import Target, load

MOST_INPUT = 256 << 10
MAP_BYTES = MOST_INPUT + 16
_GROWTH = 64 << 20  # bytes that a target may keep, after its first inputs
_MOST_MEMORY = 3 << 30  # bytes of address space that an input may take beside what was there
_WARM = 500
_KEPT = 200  # of the inputs that went through, to mutate further


def put(shared: mmap.mmap, number: int, data: bytes) -> None:
    """Note the input that is tried next."""
    shared[8:12] = len(data).to_bytes(4, "little")
    shared[16 : 16 + len(data)] = data
    shared[:8] = number.to_bytes(8, "little")


def get(shared: mmap.mmap) -> tuple[int, bytes]:
    """Number and bytes of the input that is tried."""
    size = int.from_bytes(shared[8:12], "little")
    return int.from_bytes(shared[:8], "little"), bytes(shared[16 : 16 + size])


def file_name(target: str, data: bytes) -> str:
    """The name of a finding, or of an input of the corpus."""
    return f"{target}-{hashlib.sha256(data).hexdigest()[:12]}"


def attempt(target: Target, feed: object, data: bytes) -> str | None:
    """Try an input; return how it fails, as text."""
    assert callable(feed)
    try:
        feed(data)
    except target.refusals:
        return None
    except Exception:  # noqa: BLE001  whatever it is, it is what is looked for
        return traceback.format_exc()
    return None


def drawn(rng: random.Random, pool: list[bytes], parts: tuple[bytes, ...]) -> bytes:
    """The next input: samples and earlier inputs, changed, cut, and joined."""
    data = rng.choice(pool)
    if rng.random() < 0.15:
        other = rng.choice(pool)
        data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
    return mutated(rng, data, parts)[:MOST_INPUT]


def fuzz(target: Target, seed: int, seconds: float, shared: mmap.mmap, out: Path) -> int:
    """Try inputs; write what fails into `out`; return how many inputs were tried."""
    rng = random.Random(f"{target.name} {seed}")
    ends = time.monotonic() + seconds
    number, before, seen = 0, 0, set[str]()
    with tempfile.TemporaryDirectory() as folder, target.prepare(Path(folder)) as (samples, feed):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + _MOST_MEMORY, resource.RLIM_INFINITY))
        pool = list(samples)
        while time.monotonic() < ends:
            data = drawn(rng, pool, target.parts) if number >= len(samples) else samples[number]
            number += 1
            put(shared, number, data)
            failure = attempt(target, feed, data)
            if number == _WARM:
                before = resident()
            if failure is None and number > _WARM and resident() - before > _GROWTH:
                failure = f"keeps {(resident() - before) >> 20} MiB more than after {_WARM} inputs"
                before = resident()
            if failure is not None and (kind := failure[-300:]) not in seen:
                seen.add(kind)
                name = file_name(target.name, data)
                (out / f"{name}.bin").write_bytes(data)
                text = f"target {target.name}, seed {seed}, input {number}\n\n{failure}"
                (out / f"{name}.txt").write_text(text)
            if failure is None and rng.random() < 0.02:
                pool[len(samples) :] = [*pool[len(samples) :], data][-_KEPT:]
    return number


def main() -> int:
    """Arguments: target, seed, seconds, the mapped file, the folder of findings."""
    name, seed, seconds, mapped, out = sys.argv[1:]
    with Path(mapped).open("r+b") as file, mmap.mmap(file.fileno(), MAP_BYTES) as shared:
        print(fuzz(load()[name], int(seed), float(seconds), shared, Path(out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
