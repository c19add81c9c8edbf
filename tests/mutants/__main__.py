"""``python -m tests.mutants``: plant single-line defects, and list those that no test notices.

Exit code 0 where at least 85% of the sample were noticed, else 1.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from tests.mutants.campaign import Campaign
from tests.mutants.findings import Request

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
TARGET = 0.85


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign and print what survived."""
    args = _parse(arguments)
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    root: Path = args.root
    listed = EQUIVALENT if root == ROOT else None
    only = tuple(args.only)
    request = Request(root, seed, args.count, args.jobs, only, args.seconds, equivalent=listed)
    print(f"seed {seed}", flush=True)
    campaign = Campaign(request, lambda line: print(line, flush=True))
    findings = campaign.run(root / ".mutants", retry=args.retry)

    survivors = findings.keys("passed")
    for number, defect in enumerate(campaign.defects(survivors)):
        before, after = defect.lines(campaign.source(defect.path))
        print(f"\nsurvivor {defect.path}:{defect.line} ({defect.kind})\n-   {before}\n+   {after}")
        print(f"    executed by {', '.join(findings.hits[survivors[number]])}")
        if note := findings.outcomes[survivors[number]].failed:
            print(f"    {note}")
    for defect in campaign.defects(findings.unexecuted):
        print(f"no test executes {defect.path}:{defect.line} ({defect.kind})")
    for entry in campaign.stale():
        print(f"stale in {EQUIVALENT.name}: {entry.file}: {entry.line}")
    tried, killed = len(findings.outcomes), len(findings.keys("failed"))
    late = len(findings.keys("timeout"))
    share = (killed + late) / tried if tried else 0.0
    print(
        f"\nseed {seed}: {tried} of {len(findings.chosen)} tried: {killed} killed, "
        f"{late} timed out, {len(survivors)} survived: {share:.1%} noticed; "
        f"{len(findings.unexecuted)} more that no test of their mirror executes"
    )
    return 0 if tried and share >= TARGET else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the sample (a random one, which is printed)")
    parser.add_argument("--count", type=int, default=200, help="defects to try (200)")
    parser.add_argument("--jobs", type=int, default=2, help="defects at a time (2)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATH[:LINE]",
        help="draw from this folder or module alone; with a line try all of its defects (again)",
    )
    parser.add_argument("--seconds", type=float, help="begin no defect later than that")
    parser.add_argument(
        "--retry", action="store_true", help="try what survived with this seed once more"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="of another tree")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
