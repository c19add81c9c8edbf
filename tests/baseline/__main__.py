"""Digests of a checkout's outputs, and their differences from another commit's.

``python -m tests.baseline`` prints the digests of this checkout, ``--compare REV`` which outputs of
a checkout of REV differ, ``--renew`` writes the digests that test_baseline.py expects.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

from tests.baseline.outputs import GOLDEN, PARTS, digests, made_with
from tests.baseline.recordings import Run

PROJECT = Path(__file__).resolve().parents[2]
SHARED = PROJECT.parent / "shared/data"
EXPECTED = Path(__file__).with_name("digests.json")


def main() -> int:
    """Run the parts; 1 if the commits differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.baseline", description=__doc__)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="may be repeated")
    parser.add_argument("--compare", metavar="REV", help="show differences from a checkout of REV")
    parser.add_argument("--renew", action="store_true", help=f"write {EXPECTED.name}")
    parser.add_argument("--shared", type=Path, default=SHARED, help="folder of real recordings")
    args = parser.parse_args()
    parts = GOLDEN if args.renew else args.part or list(PARTS)
    shared = args.shared if args.shared.is_dir() else None
    if shared is None and "played" in parts:
        print(f"{args.shared}: no such folder, the part played is empty", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="recorder-baseline-") as name:
        folder = Path(name)
        ours = run_parts(PROJECT, folder, "ours", parts, shared)
        found = digests(ours)
        if args.renew:
            text = json.dumps({"made_with": made_with(), "digests": found}, indent=1)
            EXPECTED.write_text(text + "\n")
        elif args.compare is None:
            print(json.dumps(found, indent=1))
        else:
            with checkout(args.compare, folder / "checkout") as other:
                theirs = run_parts(other, folder, "theirs", parts, shared)
            differences = list(compare(theirs, ours))
            print("\n".join(differences) or f"no difference in {len(found)} outputs")
            return int(bool(differences))
    return 0


def run_parts(
    project: Path, folder: Path, name: str, parts: list[str] | tuple[str, ...], shared: Path | None
) -> Path:
    """Run the parts with a checkout's code; the folder of what they kept."""
    run = Run(project, folder / "work", shared)  # one path for all, as outputs hold paths
    run.work.mkdir()
    for part in parts:
        print(f"{name}: {part}", file=sys.stderr)
        PARTS[part](run)
    return run.work.rename(folder / name) / "kept"


@contextmanager
def checkout(revision: str, folder: Path) -> Iterator[Path]:
    """Give a checkout of a commit, for a while."""
    git = ("git", "-C", str(PROJECT), "worktree")
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def compare(theirs: Path, ours: Path) -> Iterator[str]:
    """Describe each output that differs between two runs."""
    before, after = digests(theirs), digests(ours)
    for item in sorted(before | after):
        if item not in after:
            yield f"{item}: missing now"
        elif item not in before:
            yield f"{item}: new"
        elif before[item] != after[item]:
            yield f"{item}: differs\n{_first_difference(theirs / item, ours / item)}"


def _first_difference(before: Path, after: Path) -> str:
    old, new = before.read_bytes(), after.read_bytes()
    try:
        lines = zip_longest(old.decode().split("\n"), new.decode().split("\n"))
        number, (one, other) = next((n, p) for n, p in enumerate(lines, 1) if p[0] != p[1])
        return f"  line {number}\n  - {str(one)[:300]}\n  + {str(other)[:300]}"
    except UnicodeDecodeError:
        at = next((i for i, p in enumerate(zip(old, new, strict=False)) if p[0] != p[1]), -1)
        at = at if at >= 0 else min(len(old), len(new))
        around = slice(max(at - 8, 0), at + 24)
        return f"  byte {at} of {len(old)}, {len(new)}\n  - {old[around]!r}\n  + {new[around]!r}"


if __name__ == "__main__":
    sys.exit(main())
