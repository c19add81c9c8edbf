"""``python -m tests.soak [--seconds S] [--seed N] [--folder DIR]``: a soak, as long as you like."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.campaign import Soak


def main() -> int:
    """Soak; 0 where the accounts balance and memory is flat."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long (3600)")
    parser.add_argument("--seed", type=int, default=0, help="of what is done (0)")
    parser.add_argument("--folder", type=Path, help="record there and keep it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as own:
        folder = args.folder or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        result = Soak(folder, args.seed).run(args.seconds)
    found = result.balance
    print("done     ", ", ".join(f"{n} x {what}" for what, n in sorted(result.done.items())))
    print("sessions ", ", ".join(f"{n} {state}" for state, n in sorted(found.states.items())))
    print("samples  ", found.samples, "stored,", dict(found.counted), "counted as lost,", end=" ")
    print(found.intervals, "intervals uncounted,", found.seams, "seams without a gap")
    for name, (first, second) in result.memory.halves_mb.items():
        peak = result.memory.peak_mb[name]
        print(f"memory    {name}: {first:.0f} MB, then {second:.0f} MB; {peak:.0f} MB at most")
    for sentence in result.wrong:
        print("WRONG    ", sentence)
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
