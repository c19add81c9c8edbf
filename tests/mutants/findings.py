"""What a campaign was asked for and has found, and the file that a later run goes on from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from tests.mutants.defects import Defect
from tests.mutants.trees import Outcome


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be tried."""

    root: Path
    seed: int = 0
    count: int = 200
    jobs: int = 2
    only: tuple[str, ...] = ()
    """``PATH`` or ``PATH:LINE``, of which every defect is tried.  Empty: the whole product."""
    seconds: float | None = None
    """No defect is begun later."""
    patience_s: float = 30.0
    """A run with a defect may take so much longer than four times what it takes without."""
    equivalent: Path | None = None

    @property
    def names_lines(self) -> bool:
        """Whether every defect of some lines is tried, and not a sample."""
        return any(":" in place for place in self.only)

    def admits(self, path: str, line: int | None = None) -> bool:
        """Whether a module (or a line of it) lies in the places asked for."""
        for place in self.only:
            wanted, _, number = place.partition(":")
            inside = path == wanted or path.startswith(f"{wanted.rstrip('/')}/")
            if inside and (line is None or number in ("", str(line))):
                return True
        return not self.only

    @property
    def name(self) -> str:
        """What a file of its findings is called."""
        places = hashlib.sha256("\n".join(self.only).encode()).hexdigest()[:8]
        return f"{self.seed}-{self.count}" + (f"-{places}" if self.only else "")


@dataclass(slots=True)
class Findings:
    """What is known so far."""

    chosen: list[str] = field(default_factory=list)
    """Keys of the defects to try, in the order in which they were drawn."""
    unexecuted: list[str] = field(default_factory=list)
    """Keys of those that were drawn before the last of these, and that no test executes."""
    hits: dict[str, list[str]] = field(default_factory=dict)
    """By key the test files that execute the defect, the fastest first."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What each test file takes without a defect."""
    broken: dict[str, str] = field(default_factory=dict)
    """Test files that fail without any defect, and where."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def keys(self, verdict: str) -> list[str]:
        """The defects that ended so: passed (they survived), failed, timeout."""
        return [
            k for k in self.chosen if k in self.outcomes and self.outcomes[k].verdict == verdict
        ]


class Store:
    """A file of findings: what was measured first, then a line for each defect.

    store = Store(folder, request, digest)
    findings = store.load()
    store.begin(findings)
    store.add(key, outcome)
    """

    def __init__(self, folder: Path, request: Request, product: str, tests: str) -> None:
        self.path = folder / f"{request.name}.jsonl"
        self._product, self._tests = product, tests

    def load(self, *, other_tests: bool = False) -> Findings:
        """What an earlier run found in the same product with the same tests, or with any."""
        if not self.path.is_file():
            return Findings()
        first, *rest = [json.loads(line) for line in self.path.read_text().splitlines()]
        if first["product"] != self._product or not (first["tests"] == self._tests or other_tests):
            return Findings()
        findings = Findings(**first["findings"])
        findings.outcomes = {line["key"]: Outcome(**line["outcome"]) for line in rest}
        return findings

    def begin(self, findings: Findings) -> None:
        """Write all of it."""
        self.path.parent.mkdir(exist_ok=True)
        measured = asdict(findings)
        del measured["outcomes"]
        head = {"product": self._product, "tests": self._tests, "findings": measured}
        self.path.write_text(json.dumps(head) + "\n")
        for key, outcome in findings.outcomes.items():
            self.add(key, outcome)

    def add(self, key: str, outcome: Outcome) -> None:
        """Write how one defect ended."""
        with self.path.open("a") as file:
            file.write(json.dumps({"key": key, "outcome": asdict(outcome)}) + "\n")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A defect that no test can notice, and why; by the line's text, before and after."""

    file: str
    line: str
    mutant: str
    reason: str
    above: str = ""
    """The line before, where the same line stands in several places; "": any."""


def load_equivalents(path: Path | None) -> list[Equivalent]:
    """The listed ones.

    Raises:
        ValueError: an entry without a reason.
    """
    if path is None:
        return []
    found = [Equivalent(**entry) for entry in yaml.safe_load(path.read_text())]
    for entry in found:
        if not entry.reason.strip():
            raise ValueError(f"{path}: {entry.file}: {entry.mutant}: no reason")
    return found


def without_equivalents(
    defects: list[Defect], sources: Callable[[str], bytes], listed: list[Equivalent]
) -> tuple[list[Defect], set[Equivalent]]:
    """The defects that are not listed, and the entries that named one."""
    by_text: dict[tuple[str, str, str], list[Equivalent]] = {}
    for entry in listed:
        by_text.setdefault((entry.file, entry.line, entry.mutant), []).append(entry)
    files = {e.file for e in listed}
    kept, used = [], set[Equivalent]()
    for defect in defects:
        found: list[Equivalent] = []
        if defect.path in files:
            source = sources(defect.path)
            found = by_text.get((defect.path, *defect.lines(source)), [])
            found = [e for e in found if e.above in ("", defect.above(source))]
        used.update(found)
        if not found:
            kept.append(defect)
    return kept, used


def digest(root: Path, folders: tuple[str, ...]) -> str:
    """Of all Python files below some folders of a tree."""
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()
