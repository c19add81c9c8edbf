"""Jobs on Dask: an existing cluster, or local worker processes.

Dask repeats a task when its worker died, also a finished task whose result was not yet fetched.
Each result is therefore fetched and released at once, and a repeated task finds its result in the
store.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import Any, Final

from recorder.common.errors import RecorderError, StorageError, UsageError, need_extra
from recorder.fleet.packing_jobs import Job
from recorder.fleet.packing_worker import Packed, pack_job

_LOCAL: Final = re.compile(r"local(?::([1-9]\d{0,3}))?")
_CONNECT_S: Final = 20.0
_LOST_AGAIN: Final = 3  # times that a job is asked for anew after the cluster lost it

Outcome = Packed | RecorderError
"""Result of a job, or its error."""


@contextmanager
def cluster(on: str) -> Iterator[Any]:
    """Yield a `distributed.Client` for ``local``, ``local:N`` or ``dask://HOST:PORT``.

    Raises:
        UsageError: `on` is none of these, or the extra cluster is not installed.
        StorageError: the scheduler cannot be reached.
    """
    match = _LOCAL.fullmatch(on)
    if match is None and not re.fullmatch(r"dask://[^/]+:\d+", on):
        raise UsageError(f"--on: {on!r} is neither local[:N] nor dask://HOST:PORT")
    try:
        import distributed
    except ImportError as error:
        raise UsageError(f"--on {on}: {need_extra('cluster')}: {error}") from None
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)  # ours say what went wrong
    if match is not None:
        import dask

        with ExitStack() as stack:
            # No worker is given a job while it works on another one.
            stack.enter_context(dask.config.set({"distributed.scheduler.worker-saturation": 1.0}))
            with _defer_interrupt():
                local = distributed.LocalCluster(
                    n_workers=int(match[1] or len(os.sched_getaffinity(0))),
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",  # a free port that no other machine reaches
                    silence_logs="ERROR",
                )
                stack.enter_context(local)
                client = stack.enter_context(distributed.Client(local, timeout=_CONNECT_S))
            yield client
        return
    address = on.replace("dask://", "tcp://")
    try:
        client = distributed.Client(address, timeout=_CONNECT_S)
    except (OSError, TimeoutError) as error:
        raise StorageError(f"{on}: the scheduler cannot be reached: {error}") from None
    with client:
        yield client


@contextmanager
def _defer_interrupt() -> Iterator[None]:
    """Defer Ctrl-C: it would end workers that are still starting, each with a traceback."""
    resource_tracker.ensure_running()  # starting it lets Ctrl-C through again
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the workers inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt


def count_workers(client: Any) -> int:
    """Return the number of threads that the cluster has for jobs now."""
    found: Mapping[str, int] = client.nthreads()
    return sum(found.values())


def run_jobs(client: Any, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome]]:
    """Run jobs on a cluster; yield each in the order of completion.

    Raises:
        StorageError: the scheduler is gone.  Completed jobs stay completed.
    """
    from distributed import as_completed

    waiting = {make_task_key(job): job for job in jobs}
    asked = dict.fromkeys(waiting, 1)
    # The largest first, so that no worker begins a long job when the others are done.
    ordered = sorted(waiting, key=lambda key: -waiting[key].size)
    futures = client.map(
        pack_job, [waiting[key] for key in ordered], key=ordered, pure=True, retries=0
    )
    completed = as_completed(futures, loop=client.loop, raise_errors=False)
    del futures
    try:
        for future in completed:
            key, status = future.key, future.status
            job = waiting[key]
            if status in ("lost", "cancelled"):
                _check_scheduler(client)
                asked[key] += 1
                if asked[key] <= 1 + _LOST_AGAIN:
                    future.release()
                    completed.add(client.submit(pack_job, job, key=key, pure=True))
                    continue
                outcome: Outcome = RecorderError(
                    f"{job.title}: the cluster lost it again and again"
                )
            else:
                outcome = _read_outcome(job, future)
            future.release()
            del waiting[key]
            yield job, outcome
    except (OSError, TimeoutError) as error:  # of Dask's connections
        raise _make_gone_error(client) from error
    if waiting:
        raise _make_gone_error(client)


def make_task_key(job: Job) -> tuple[str, str, str]:
    """Return the job's name on the cluster.

    Its first word names one group of tasks for all jobs.  Dask hands the tasks of a group to the
    workers as they become free; it assigns tasks that are alone in their group to workers at once.
    """
    return "pack", f"{job.name} {job.archive}", job.identity


def _check_scheduler(client: Any) -> None:
    try:
        client.sync(client.scheduler.identity)
    except Exception as error:  # what a broken connection raises is not documented
        raise _make_gone_error(client) from error


def _make_gone_error(client: Any) -> StorageError:
    address = getattr(client.scheduler, "address", "the scheduler")
    return StorageError(
        f"{address}: the scheduler is gone; run the command again, what is finished is skipped"
    )


def _read_outcome(job: Job, future: Any) -> Outcome:
    from distributed import KilledWorker

    if future.status == "finished":
        result: Packed = future.result()
        return result
    error = future.exception()
    if isinstance(error, RecorderError):
        return error
    if isinstance(error, KilledWorker):
        return RecorderError(
            f"{job.title}: {error.allowed_failures + 1} workers died of it; look for their memory "
            "limit, and at the log of the last one"
        )
    return RecorderError(f"{job.title}: {type(error).__name__}: {error}")
