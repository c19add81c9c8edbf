"""Fuzzes every listening socket and every parser: ``make fuzz FUZZ_S=3600``.

A crash, an error that is not the target's own, an input that takes longer than a minute, and memory
that grows are failures.  Their inputs are written to ``.fuzz``; `--replay` tries one again.
"""

from __future__ import annotations

import argparse
import mmap
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.targets import load
from tests.fuzz.worker import MAP_BYTES, attempt, file_name, get

OUT = Path(__file__).resolve().parents[2] / ".fuzz"
_JOBS = 2
_HANG_S = 60.0  # a watchdog's: nothing takes a thousandth of it
_START_S = 120.0  # of a process, and what its target prepares


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--only", default="", help="targets whose names contain this")
    parser.add_argument("--replay", type=Path, help="try this file's bytes once more")
    options = parser.parse_args()
    if options.replay is not None:
        return replay(options.replay)
    names = [name for name in load() if options.only in name]
    OUT.mkdir(exist_ok=True)
    before = set(OUT.iterdir())
    share_s = options.seconds * _JOBS / max(len(names), 1)
    print(f"{len(names)} targets, {share_s:.0f} s each, seed {options.seed}", flush=True)
    random.Random(options.seed).shuffle(names)
    with ThreadPoolExecutor(_JOBS) as pool:
        for line in pool.map(lambda name: campaign(name, options.seed, share_s), names):
            print(line, flush=True)
    found = sorted(set(OUT.glob("*.txt")) - before)
    for path in found:
        print(f"\n{path}: {path.read_text()}")
    print(f"\n{len(found)} findings")
    return 1 if found else 0


def campaign(name: str, seed: int, seconds: float) -> str:
    """Fuzz one target in a process of its own, and watch that process; return what to print."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(MAP_BYTES)
        with mmap.mmap(file.fileno(), MAP_BYTES) as shared:
            command = [sys.executable, "-m", "tests.fuzz.worker", name, str(seed), str(seconds)]
            child = subprocess.Popen(
                [*command, file.name, str(OUT)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            last, since, hung = 0, time.monotonic(), False
            while True:
                try:
                    out, err = child.communicate(timeout=1.0)
                    break
                except subprocess.TimeoutExpired:
                    pass
                number, _ = get(shared)
                if number != last:
                    last, since = number, time.monotonic()
                if time.monotonic() - since > (_HANG_S if last else _START_S):
                    hung = True
                    child.kill()
            number, data = get(shared)
    if child.returncode == 0:
        return f"{name:20} {int(out):9} inputs"
    what = "hangs" if hung else f"ends with code {child.returncode}"
    path = OUT / file_name(name, data)
    path.with_suffix(".bin").write_bytes(data)
    text = f"target {name}, seed {seed}, input {number}: {what}\n\n"
    path.with_suffix(".txt").write_text(text + err.decode(errors="replace")[-4000:])
    return f"{name:20} {number:9} inputs, then {what}"


def replay(path: Path) -> int:
    """Try a finding again: the part of its name before the digest is the target's."""
    target = load()[path.stem.rpartition("-")[0]]
    with tempfile.TemporaryDirectory() as folder, target.prepare(Path(folder)) as (_, feed):
        failure = attempt(target, feed, path.read_bytes())
    print(failure or f"{path}: refused or taken, as it should be")
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
