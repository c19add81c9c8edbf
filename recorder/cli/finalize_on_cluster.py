"""``recorder finalize ... --on CLUSTER --out URL``: pack many sessions in parallel, on Dask."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import emit, note, plain, prefix_error, progress
from recorder.common.errors import RecorderError, UsageError
from recorder.common.text_format import format_bytes, format_seconds

if TYPE_CHECKING:
    from recorder.archives.finalize import ArchiveRequest
    from recorder.fleet.packing_jobs import Job
    from recorder.fleet.packing_worker import Packed


def run(args: argparse.Namespace, steps: list[ArchiveRequest]) -> int:
    """Pack; return 0, or 1 if a session or an archive failed (the others are packed)."""
    from recorder.fleet.dask_cluster import cluster, count_workers, run_jobs
    from recorder.fleet.packing_jobs import plan_jobs
    from recorder.fleet.store.base import is_store

    if args.out is None:
        raise UsageError("--on: needs --out, a folder that all workers see, or s3://BUCKET/PREFIX")
    out = args.out if is_store(args.out) else Path(args.out).absolute().as_uri()
    identity = None if args.identity is None else str(Path(args.identity).absolute())
    plan = plan_jobs(args.sessions, steps, out, args.calibration, identity, args.redact)
    for what, why in plan.refused.items():
        note(f"recorder finalize: {what}: {why}")
    seconds = 0.0
    done: list[tuple[Job, Packed]] = []
    failed: list[str] = []
    if plan.jobs:
        with (
            cluster(args.on) as client,
            progress(
                f"packing on {count_workers(client)} workers", float(len(plan.jobs))
            ) as advance,
        ):
            began_s = time.monotonic()
            for job, outcome in run_jobs(client, plan.jobs):
                if isinstance(outcome, RecorderError):
                    failed.append(job.title)
                    note(f"recorder finalize: {prefix_error(job.title, outcome)}")
                else:
                    done.append((job, outcome))
                advance(1.0, job.title)
            seconds = time.monotonic() - began_s
    values = {
        "archives": [
            {"session": job.name, "archive": job.archive, "out": job.out, **plain(packed)}
            for job, packed in sorted(done, key=lambda item: item[0].title)
        ],
        "finished": [job.title for job in plan.finished],
        "failed": failed,
        "refused": plan.refused,
        "seconds": seconds,
    }
    emit(values, args, _format_text)
    return 1 if failed or plan.refused else 0


def _format_text(values: dict[str, Any]) -> str:
    lines = []
    for made in values["archives"]:
        took = "found" if made["found"] else (
            f"fetched in {format_seconds(made['fetch_s'])}, packed in "
            f"{format_seconds(made['pack_s'])}, stored in {format_seconds(made['store_s'])}"
        )  # fmt: skip
        size = format_bytes(made["bytes"])
        lines.append(f"{made['session']}: {made['archive']}: {size}, {took} ({made['worker']})")
        lines += [f"  note: {text}" for text in made["notes"]]
    problems = len(values["failed"]) + len(values["refused"])
    lines.append(
        f"{len(values['archives'])} archives in {format_seconds(values['seconds'])}, "
        f"{len(values['finished'])} were there, {problems} failed"
    )
    return "\n".join(lines)
