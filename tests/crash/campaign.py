"""Crashes at every operation of recorded sessions, each recovered and held against the promise.

The long run, with a million states::

    python -m tests.crash.campaign --states 1000000 --seed 1 --jobs 2

A failure names the scenario's seed, the operation and the kind of crash; the same seed gives the
same states.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import LOCK
from tests.crash.model import Model
from tests.crash.oracle import CrashError, Found, Oracle
from tests.crash.scenario import SESSION, Mark, Recording, record, small_videos
from tests.crash.simdisk import Op, SimulatedDisk, Tree
from tests.manual_clock import ManualClock

AGAIN_EVERY = 25
"""Of so many states one is crashed again in the middle of its recovery."""
VALIDATE_EVERY = 20
"""Of so many states one is validated even where its like was found sound before."""
_TELL_S = 60.0  # from line to line, where there is no terminal
_NOTHING = Mark(0, {}, 0)
_SKIPPED = frozenset({LOCK})


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory, if the machine has one."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="recorder-crash-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@dataclass(slots=True)
class Tally:
    """What a campaign has seen.

    Attributes:
        kinds: distinct crash states of each kind, all of them checked.
        repeated: states that were there before, and not checked again.
        recordings: scenarios.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    recordings: int = 0

    @property
    def states(self) -> int:
        """Distinct crash states, all of them checked."""
        return sum(self.kinds.values())

    def add(self, other: Tally) -> None:
        self.kinds += other.kinds
        self.repeated += other.repeated
        self.recordings += other.recordings

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return f"{self.states} distinct states of {self.recordings} sessions ({kinds})"


class Crashes:
    """All crashes of one recording.

    Args:
        recording: what to crash.
        folder: where states are made real.
        random: draws the states.
        per_op: power cuts to draw at an operation.
        every: of so many operations about one is crashed at.
        limit: states at most.
    """

    def __init__(
        self,
        recording: Recording,
        folder: Path,
        random: Random,
        per_op: int,
        every: int,
        limit: int,
    ) -> None:
        self._recording = recording
        self._folder = folder
        self._random = random
        self._per_op = per_op
        self._every = every
        self._limit = limit
        self._oracle = Oracle(recording)
        self._seen: set[bytes] = set()
        self.tally = Tally(recordings=1)

    def run(self) -> None:
        """Crash at every operation, before, during and after it.

        Raises:
            CrashError: a state does not recover as it must.
        """
        model = Model(self._recording.base)
        ops, marks = self._recording.ops, list(self._recording.marks)
        mark = _NOTHING
        for at in range(len(ops) + 1):
            while marks and marks[0].at <= at:
                mark = marks.pop(0)
            going_on = ops[at] if at < len(ops) else None
            if self._random.randrange(self._every) == 0:
                self._crash(model, at, mark, going_on)
            if self.tally.states >= self._limit:
                return
            if going_on is not None:
                model.apply(going_on)

    def _crash(self, model: Model, at: int, mark: Mark, going_on: Op | None) -> None:
        random = self._random
        here = model
        if going_on is not None and going_on.kind != "sync":
            here = model.copy()
            here.apply(going_on)  # done or not: of what goes on, a cut may leave anything
        life = self._life(at)
        kinds = ["killed"] + ["power"] * self._per_op
        for kind in kinds:
            # Killed: what is not durable yet stays so while somebody recovers it.
            kernel = model.after_kill(random, going_on) if kind == "killed" else None
            tree = here.power_cut(random) if kernel is None else kernel.visible()
            key = kind.encode() + tree.digest()
            if key in self._seen:
                self.tally.repeated += 1
                continue
            self._seen.add(key)
            self.tally.kinds[kind] += 1
            try:
                self._check(tree, kernel or Model(tree), kind, mark, life)
            except Exception as error:  # whatever recovery ends with is a finding, with its place
                where = (
                    f"seed {self._recording.seed}, operation {at} ({going_on and _short(going_on)})"
                )
                raise CrashError(f"{where}, {kind}: {type(error).__name__}: {error}") from error

    def _life(self, at: int) -> int:
        return bisect_right(self._recording.lives, at) - 1

    def _check(self, tree: Tree, kernel: Model, kind: str, mark: Mark, life: int) -> None:
        number = self.tally.states
        root = self._folder / f"{number}"
        tree.write(root)
        try:
            session = root / SESSION
            if not session.is_dir():
                if any(mark.promised.values()) or mark.closed:
                    raise CrashError("there is no session any more")
                return
            boot = None if kind == "killed" else "another"
            again = number % AGAIN_EVERY == 0
            disk = SimulatedDisk(root, base=tree if again else None)
            found = self._recover(disk, root, tree, boot, life, number % VALIDATE_EVERY == 0)
            self._oracle.hold(found, mark)
            if (
                mark.closed
                and json.loads((session / "_recorder/session.json").read_bytes())["state"]
                != "clean"
            ):
                raise CrashError("was closed, and is not clean")
            if again:
                self._crash_again(kernel, disk.ops, kind, mark, life, found)
        finally:
            shutil.rmtree(root)

    def _recover(
        self,
        disk: SimulatedDisk,
        root: Path,
        before: Tree,
        boot: str | None,
        life: int,
        force: bool = False,
    ) -> Found:
        """Recover, twice; the second time must find nothing to do."""
        session = root / SESSION
        recover(session, disk, _clock(), boot=boot)
        untouched = SimulatedDisk(root)
        report = recover(session, untouched, _clock(), boot="yet another")
        if report.action != "none" or untouched.ops:
            raise CrashError("a second recovery changes the session")
        after = Tree.of(session, _SKIPPED)
        _hold_salvage(before.below(SESSION), after)
        return self._oracle.look(session, after, life, force)

    def _crash_again(
        self, model: Model, ops: list[Op], kind: str, mark: Mark, life: int, found: Found
    ) -> None:
        """Crash in the middle of a recovery, or right after it, and recover again."""
        points = {self._random.randrange(len(ops) + 1) for _ in range(3)} | {len(ops)}
        for at in range(len(ops) + 1):
            if at in points:
                self._crash_recovery(model, kind, mark, life, found, done=at == len(ops))
            if at < len(ops):
                model.apply(ops[at])

    def _crash_recovery(
        self, model: Model, kind: str, mark: Mark, life: int, found: Found, done: bool
    ) -> None:
        for how in (kind, "power"):
            state = model.visible() if how == "killed" else model.power_cut(self._random)
            key = b"again" + how.encode() + state.digest()
            if key in self._seen:
                continue
            self._seen.add(key)
            name = f"{kind}, recovering, {how}"
            self.tally.kinds[name] += 1
            root = self._folder / f"again{self.tally.states}"
            state.write(root)
            try:
                if not (root / SESSION).is_dir():
                    if done or any(mark.promised.values()) or mark.closed:
                        raise CrashError("there is no session any more")
                    continue
                boot = None if how == "killed" else "a third"
                second = self._recover(SimulatedDisk(root), root, state, boot, life)
                self._oracle.hold(second, mark)
                if (how == kind or done) and second.samples != found.samples:
                    raise CrashError(
                        f"{name}: {second.samples} samples, undisturbed {found.samples}"
                    )
            except CrashError as error:
                raise CrashError(f"{name}: {error}") from error
            finally:
                shutil.rmtree(root)


def _hold_salvage(before: Tree, after: Tree) -> None:
    """Every byte that was cut from a stream's file is kept aside."""
    salvage = "_recorder/salvage/"
    old, new = dict(before.walk()), dict(after.walk())
    for path, data in old.items():
        if data is None or path.startswith("_recorder/") or path.endswith((".avi", ".vrs")):
            continue  # these are longer after they were cut: an index has been appended
        left = new.get(path)
        if left is None and path.partition("/")[0] in new:
            raise CrashError(f"{path}: is gone")
        if left is None or len(left) >= len(data):
            continue
        names = [n for n in new if n.startswith(f"{salvage}{path}@{len(left)}")]
        if data[len(left) :] not in [new[n] for n in names]:
            raise CrashError(f"{path}: {len(data) - len(left)} bytes were cut and not kept")
    for path, data in old.items():
        if path.startswith(salvage) and new.get(path, b"") != data and "tmp" not in path:
            raise CrashError(f"{path}: what was salvaged before is gone")


def _clock() -> ManualClock:
    return ManualClock(monotonic_ns=90_000_000_000)


def _short(op: Op) -> str:
    return f"{op.kind} {op.node} {op.name or op.at}"


def run_seed(
    seed: int,
    *,
    per_op: int = 3,
    every: int = 1,
    limit: int = sys.maxsize,
    steps: int = 60,
    disk_class: type[SimulatedDisk] = SimulatedDisk,
    writer_class: type[SessionWriter] = SessionWriter,
) -> Tally:
    """Record the session of a seed and crash it.

    Raises:
        CrashError: a state did not recover as it must.
    """
    with scratch() as folder, small_videos():
        recording = record(folder / "live", seed, steps, disk_class, writer_class)
        crashes = Crashes(recording, folder, Random(seed), per_op, every, limit)
        crashes.run()
    return crashes.tally


def run(
    states: int, seed: int, progress: Callable[[Tally], None] = lambda _: None, **more: Any
) -> Tally:
    """Crash sessions of seeds from `seed` on, until there are so many distinct states."""
    tally = Tally()
    while tally.states < states:
        tally.add(run_seed(seed, limit=states - tally.states, **more))
        progress(tally)
        seed += 1
    return tally


def main() -> int:
    """The long run."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.crash.campaign")
    parser.add_argument("--states", type=int, default=100_000, help="distinct crash states")
    parser.add_argument("--seed", type=int, default=0, help="of the first session")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    tally, seed, began = Tally(), args.seed, time.monotonic()
    reported = began
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting: set[Future[Tally]] = set()
        while tally.states < args.states:
            while len(waiting) < args.jobs + 1:
                waiting.add(pool.submit(run_seed, seed))
                seed += 1
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    tally.add(future.result())
                except CrashError as error:
                    print(f"\nFAILED: {error}\nafter {tally}")
                    pool.shutdown(cancel_futures=True)
                    return 1
            if sys.stderr.isatty():
                print(f"\r{tally.states} of {args.states}", end="", file=sys.stderr, flush=True)
            elif time.monotonic() - reported >= _TELL_S:
                reported = time.monotonic()
                print(f"{tally.states} of {args.states}", file=sys.stderr, flush=True)
        for future in waiting:
            future.cancel()
    print(
        f"\nall recovered: {tally}, seeds {args.seed} to {seed - 1}, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
