"""The campaign: a sample of defects, the tests that execute them, and which defects survive."""

from __future__ import annotations

import queue
import random
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import gettempdir
from typing import TypeVar

from tests.mutants.defects import Defect, changes_program, find_defects, probes
from tests.mutants.findings import (
    Equivalent,
    Findings,
    Request,
    Store,
    digest,
    load_equivalents,
    without_equivalents,
)
from tests.mutants.suites import Suites
from tests.mutants.trees import Tree, instrumented

PRODUCT = ("recorder", "drivers")
_SPARE = 1.5  # so many are drawn for each that is wanted: some lines no test executes
_SLOWER = 4.0  # a run with a defect may take so many times as long, and `patience_s` more
_LONGEST_S = 1200.0  # for one test file without any defect
_MEMORY = Path("/dev/shm")  # most tests wait for syncs of a disk, and do little else
_WORDS = {"passed": "SURVIVED", "failed": "killed", "timeout": "timed out"}

Work = TypeVar("Work")


class Campaign:
    """One campaign over a tree.

    campaign = Campaign(Request(Path(), seed=7, count=40, only=("drivers",)), print)
    findings = campaign.run(Path(".mutants"))
    for defect in campaign.defects(findings.keys("passed")):
        print(defect.path, defect.line, *defect.lines(campaign.source(defect.path)))
    """

    def __init__(self, request: Request, say: Callable[[str], None]) -> None:
        self._request = request
        self._say = say
        self._suites = Suites(request.root)
        self._sources: dict[str, bytes] = {}
        self._end = None if request.seconds is None else time.monotonic() + request.seconds
        self._listed = load_equivalents(request.equivalent)
        self._trees: list[Tree] = []
        self._stopped = False
        self._drawn = self._draw()
        self._by_key = {d.key: d for d in self._drawn}

    def run(self, folder: Path, *, retry: bool = False) -> Findings:
        """Try the sample; go on where an earlier run with the same request and tree was ended.

        ``retry``: of an earlier run's sample try only what survived, with the tests as they are.
        """
        root = self._request.root
        store = Store(folder, self._request, digest(root, PRODUCT), digest(root, ("tests",)))
        findings = store.load(other_tests=retry)
        if retry:
            for key in findings.keys("passed"):
                del findings.outcomes[key]
        elif findings.outcomes:
            self._say(f"going on from {store.path}")
        with ExitStack() as stack:
            trees: queue.Queue[Tree] = queue.Queue()
            for _ in range(self._request.jobs):
                base = _MEMORY if _MEMORY.is_dir() else Path(gettempdir())
                place = base / f"mutants-{secrets.token_hex(3)}"
                self._trees.append(stack.enter_context(Tree(root, place)))
            for tree in self._trees:
                trees.put(tree)
            if not findings.chosen:
                findings = self._find_executed(self._drawn, trees)
            elif retry:
                waiting = [k for k in findings.chosen if k not in findings.outcomes]
                fresh = self._find_executed(self.defects(waiting), trees)
                findings.hits |= fresh.hits
                findings.seconds |= fresh.seconds
                findings.broken = fresh.broken
            store.begin(findings)
            self._try_all(findings, trees, store)
        return findings

    def defects(self, keys: Sequence[str]) -> list[Defect]:
        """The defects of the sample by their keys."""
        return [self._by_key[key] for key in keys]

    def source(self, path: str) -> bytes:
        """A file as it was when the campaign began."""
        if path not in self._sources:
            self._sources[path] = (self._request.root / path).read_bytes()
        return self._sources[path]

    def stale(self) -> list[Equivalent]:
        """Entries of the list of equivalent defects that name no defect any more."""
        found: list[Defect] = []
        for path in {e.file for e in self._listed if (self._request.root / e.file).is_file()}:
            found += find_defects(path, self.source(path))
        used = without_equivalents(found, self.source, self._listed)[1]
        return [entry for entry in self._listed if entry not in used]

    def _draw(self) -> list[Defect]:
        """The sample and some to spare: lines at random, of each one defect of a random kind."""
        request = self._request
        by_line: dict[tuple[str, int], list[Defect]] = {}
        for path in sorted(p for name in PRODUCT for p in (request.root / name).rglob("*.py")):
            name = path.relative_to(request.root).as_posix()
            if not request.admits(name):
                continue
            found = find_defects(name, self.source(name))
            for defect in without_equivalents(found, self.source, self._listed)[0]:
                if request.admits(name, defect.line):
                    by_line.setdefault((name, defect.line), []).append(defect)
        if request.names_lines:
            named = [defect for found in by_line.values() for defect in found]
            return [d for d in named if changes_program(d, self.source(d.path))]
        chance = random.Random(request.seed)
        places = sorted(by_line)
        chance.shuffle(places)
        drawn = []
        for place in places[: int(request.count * _SPARE)]:
            kinds = sorted({d.kind for d in by_line[place]})
            chance.shuffle(kinds)
            mine = [d for kind in kinds for d in by_line[place] if d.kind == kind]
            drawn += [d for d in mine if changes_program(d, self.source(d.path))][:1]
        return drawn

    def _find_executed(self, drawn: list[Defect], trees: queue.Queue[Tree]) -> Findings:
        """Run the mirror suites without a defect, and see which files execute which."""
        mirrors = {path: self._suites.of(path) for path in {d.path for d in drawn}}
        files = sorted({file for found in mirrors.values() for file in found})
        self._say(f"{len(drawn)} defects drawn; running {len(files)} test files without them")
        insertions = {
            path: list(probes([(n, d) for n, d in enumerate(drawn) if d.path == path]))
            for path in mirrors
        }
        for tree in self._trees:
            tree.count_hits()
            for path, texts in insertions.items():
                tree.write(path, instrumented(self.source(path), texts))
        findings = Findings()
        hits: dict[str, set[int]] = {}

        def measure(tree: Tree, file: str) -> None:
            outcome = tree.run_tests([file], _LONGEST_S)
            hits[file] = tree.take_hits()
            findings.seconds[file] = outcome.seconds
            if outcome.verdict == "empty":
                hits[file] = set()  # what it imports it does not test
            elif outcome.verdict != "passed":
                findings.broken[file] = outcome.failed or outcome.verdict
                self._say(f"     without a defect fails {findings.broken[file]}")

        self._spread(trees, files, measure)
        for tree in self._trees:
            for path in mirrors:
                tree.restore(path)
        usable = [f for f in hits if f not in findings.broken]
        usable.sort(key=lambda file: findings.seconds[file])
        for number, defect in enumerate(drawn):
            if not self._request.names_lines and len(findings.chosen) == self._request.count:
                break
            mine = [f for f in usable if number in hits[f] and f in mirrors[defect.path]]
            if mine:
                findings.chosen.append(defect.key)
                findings.hits[defect.key] = mine
            else:
                findings.unexecuted.append(defect.key)
        return findings

    def _try_all(self, findings: Findings, trees: queue.Queue[Tree], store: Store) -> None:
        waiting = [k for k in findings.chosen if k not in findings.outcomes]
        self._say(f"{len(findings.chosen)} defects that tests execute; {len(waiting)} to try")

        def attempt(tree: Tree, key: str) -> None:
            defect, files = self._by_key[key], findings.hits[key]
            usual = sum(findings.seconds[file] for file in files)
            limit = _SLOWER * usual + self._request.patience_s
            tree.write(defect.path, defect.applied(self.source(defect.path)))
            try:
                outcome = tree.run_tests(files, limit)
            finally:
                tree.restore(defect.path)
            if self._stopped:
                return  # it was killed, but by no test
            findings.outcomes[key] = outcome
            store.add(key, outcome)
            done, word = len(findings.outcomes), _WORDS[outcome.verdict]
            place = f"{defect.path}:{defect.line} {defect.kind}"
            self._say(f"{done:4d} {word:9s} {outcome.seconds:5.0f} s  {place}  {outcome.failed}")

        self._spread(trees, waiting, attempt)

    def _spread(
        self, trees: queue.Queue[Tree], work: Sequence[Work], do: Callable[[Tree, Work], None]
    ) -> None:
        """Do each piece of work in a tree that is free, until the time is over."""

        def turn(piece: Work) -> None:
            if self._end is not None and time.monotonic() > self._end:
                return
            tree = trees.get()
            try:
                do(tree, piece)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(self._request.jobs) as pool:
            futures = [pool.submit(turn, piece) for piece in work]
            try:
                for future in futures:
                    future.result()
            except BaseException:  # Ctrl-C, too: nothing more is begun, and what runs is ended
                self._stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                for tree in self._trees:
                    tree.end()
                raise
