"""Interface between the benchmarks and the command that runs them.

A benchmark is a module ``benchmarks/NAME.py``, run by ``python -m benchmarks NAME``::

    OPTIONS = {"seconds": Option("float", 20.0, "length of a run"),
               "rounds": Option("int", 5, "repetitions", minimum=1)}
    QUICK = {"seconds": 3.0, "rounds": 2}

    def measure(run: Run) -> Iterator[Figure]:
        run.data["camera"] = "24 pictures of a real video"
        ours, theirs = [], []
        for _ in run.rounds():
            theirs.append(...)
            ours.append(...)
        yield Figure("ratio", ratios(ours, theirs))

Figures that were yielded before a failure stay in the result.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import psutil

from benchmarks.figures import Figure, ratios
from benchmarks.measure import TreeMemory, adopting_orphans
from drivers.kit.emulator import Emulator
from recorder.config.options import Option
from recorder.config.settings import SensorEntry

__all__ = ["Figure", "Option", "Run", "Unavailable", "ratios", "recorder", "run_measured"]

ROOT: Final = Path(__file__).resolve().parents[1]
RECORDINGS: Final = ROOT.parent / "shared" / "data"
"""Folder of the real recordings, if it exists."""
PEERS: Final = ROOT / ".venv-bench" / "bin"
"""Folder of the peers' programs and their Python; see `requirements/constraints-bench.txt`."""

T = TypeVar("T")
Way = TypeVar("Way")
_END_S = 10.0
_PACKAGES = ("numpy", "opencv-python-headless", "pyzmq", "msgspec", "ouster-sdk", "blake3")


class BenchmarkError(Exception):
    """Error: a run could not be measured."""


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not an error
    """Error: a requirement of a benchmark is not on this machine."""


class Module(Protocol):
    """Module of a benchmark."""

    __doc__: str | None
    OPTIONS: Mapping[str, Option]
    QUICK: Mapping[str, Any]

    def measure(self, run: Run) -> Iterator[Figure]:
        """Measure, and yield each figure as soon as it is known."""


@dataclass
class Run:
    """One run of one benchmark.

    Attributes:
        folder: an empty folder on the disk to measure, removed afterwards.
        options: a value for each key of the module's `OPTIONS`.
        recordings: folder of the real recordings; None: simulate all frames.
        quick: whether a short run was requested.
        deadline_s: on the monotonic clock; no new round begins that would end later.
        data: the recorded or packed data, by part, for people.
        notes: remarks for people.
        skipped: parts that were not run, and the reasons.
    """

    folder: Path
    options: Mapping[str, Any]
    recordings: Path | None = None
    quick: bool = False
    deadline_s: float = float("inf")
    data: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def rounds(self, share: float = 1.0) -> Iterator[int]:
        """Yield the numbers of the rounds: the option ``rounds``, or fewer if time runs out.

        The first round always takes place.  A later one begins only if a round as long as the
        longest so far still fits.

        Args:
            share: share of the remaining time that these rounds may take.
        """
        begin_s = time.monotonic()
        end_s = begin_s + share * (self.deadline_s - begin_s)
        longest_s = 0.0
        for number in range(self.options["rounds"]):
            round_s = time.monotonic()
            if number and round_s + longest_s > end_s:
                self.note(f"{number} of {self.options['rounds']} rounds: the time is up")
                return
            yield number
            longest_s = max(longest_s, time.monotonic() - round_s)

    @property
    def late(self) -> bool:
        """True if the time is up."""
        return time.monotonic() >= self.deadline_s

    def note(self, text: str) -> None:
        """Record a remark, and show it now."""
        self.notes.append(text)
        progress(text)

    def skip(self, what: str, why: str) -> None:
        """Record a part that is not run, and the reason."""
        self.skipped[what] = why
        progress(f"not run: {what}: {why}")

    def take_turns(
        self, ways: Mapping[Way, Callable[[Path], T]], share: float = 1.0
    ) -> dict[Way, list[T]]:
        """Measure every way in every round, each in an empty folder; return the values by way."""
        done: dict[Way, list[T]] = {way: [] for way in ways}
        for _ in self.rounds(share):
            for way, measure in ways.items():
                with self.scratch() as folder:
                    done[way].append(measure(folder))
        return done

    def repeat(self, measure: Callable[[Path], T], share: float = 1.0) -> list[T]:
        """Measure in every round, in an empty folder; return the values."""
        return self.take_turns({"": measure}, share)[""]

    def alternate(
        self,
        theirs: Callable[[Path], Any],
        ours: Mapping[str, Callable[[Path], Any]],
        share: float = 1.0,
    ) -> dict[str, list[Any]]:
        """Measure theirs once, then ours and theirs in turns; return the values by name."""
        with self.scratch() as folder:
            first = theirs(folder)
        done = self.take_turns({**ours, "theirs": theirs}, share)
        return {**done, "theirs": [first, *done["theirs"]]}

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make an empty folder after a sync of earlier writes; remove it at the end."""
        os.sync()
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spawn(target: Callable[..., None], *args: Any) -> Iterator[Connection]:
    """Run ``target(*args, link)`` in a separate process; yield the other end of the link.

    At the end the process gets the message ``stop``, and is awaited.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(*args, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        with suppress(OSError):
            here.send("stop")
        process.join(_END_S)
        process.kill()
        process.join()


def run_emulator(
    kind: Callable[[SensorEntry], Emulator], entry: SensorEntry, link: Connection
) -> None:
    """Emulate a device until `link` has a message; send source, options, start (ns)."""
    emulator = kind(entry)
    source = emulator.start()
    start_ns = time.monotonic_ns()
    emulator.step(start_ns)
    link.send((source.source, dict(source.options), start_ns))
    while not link.poll():
        due_ns = emulator.step(time.monotonic_ns())
        if (wait_s := (due_ns - time.monotonic_ns()) / 1e9) > 0:
            time.sleep(wait_s)
    emulator.stop()


def find_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    """Return a free port of loopback, for UDP or for TCP."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_line(process: subprocess.Popen[str], beginning: str) -> str:
    """Read a line of a process.

    Raises:
        BenchmarkError: the line begins with something else.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(beginning):
        raise BenchmarkError(f"{process.args!r}: printed {line!r} instead of {beginning!r}")
    return line


def write_line(process: subprocess.Popen[str], line: str) -> None:
    """Write a line to a process."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def progress(text: str) -> None:
    """Show a line on stderr."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class FinishedProcess:
    """Measurements of a process that has ended.

    Attributes:
        wall_s: time from the start to the end.
        cpu_s: user and system time, with all processes that it has started.
        peak_mb: peak resident memory of the process itself.
        tree_mb: peak memory of the process and its descendants, as proportional set sizes (PSS)
            read several times a second; 0 if it was not requested.
        stdout, stderr: the output.
        code: exit code.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    tree_mb: float
    stdout: str
    stderr: str
    code: int


_ORPHAN_S = 10.0
_PEAK = "benchmark-peak-kB"
# The kernel counts a child's peak from its parent's memory on: only the child itself can say.
_WITH_PEAK = (
    "import sys, recorder.cli as c; code = c.main()\n"
    "status = open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]\n"
    f"sys.stderr.write(f'\\n{_PEAK} {{status}}\\n'); sys.exit(code)"
)


def recorder(*words: object) -> list[str]:
    """Return the recorder's command with the given words, for `run_measured`."""
    return [sys.executable, "-c", _WITH_PEAK, *map(str, words)]


def run_measured(
    command: Sequence[str],
    *,
    bytecode: Path | None = None,
    timeout_s: float | None = None,
    tree: bool = False,
) -> FinishedProcess:
    """Run a process to its end, and measure it from outside.

    Args:
        command: the command's words, from `recorder`, so that its peak memory is known.
        bytecode: folder in which Python stores bytecode, as in an installed package; None: as in
            this process.
        timeout_s: time after which the process is killed.
        tree: whether to read the memory of all processes, which takes 1 to 3% of a core.

    Raises:
        BenchmarkError: the process took longer than `timeout_s`, or left a process that does not
            end.
    """
    already = set(psutil.Process().children())
    environment = dict(os.environ)
    if bytecode is not None:
        environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, adopting_orphans():
        started_s = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=err)
        alarm = threading.Timer(timeout_s or threading.TIMEOUT_MAX, process.kill)
        alarm.daemon = True
        alarm.start()
        memory = TreeMemory(process.pid) if tree else None
        _, status, used = os.wait4(process.pid, 0)
        alarm.cancel()
        wall_s = time.monotonic() - started_s
        tree_mb = memory.close() if memory is not None else 0.0
        orphans_s = sum(map(_end_orphan, set(psutil.Process().children()) - already))
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if timeout_s is not None and wall_s >= timeout_s:
        raise BenchmarkError(f"{' '.join(command[-6:])}: took longer than {timeout_s:g} s")
    peaks = re.findall(rf"^{_PEAK} (\d+)$", texts[1], re.MULTILINE)
    return FinishedProcess(
        wall_s,
        used.ru_utime + used.ru_stime + orphans_s,
        int(peaks[-1]) * 1024 / 1e6 if peaks else used.ru_maxrss * 1024 / 1e6,
        tree_mb,
        texts[0],
        re.sub(rf"\n{_PEAK} \d+\n", "", texts[1]),
        process.returncode,
    )


def _end_orphan(orphan: psutil.Process) -> float:
    """Wait for a process that another has left; return its CPU seconds."""
    for _ in range(round(_ORPHAN_S / 0.01)):
        pid, _, used = os.wait4(orphan.pid, os.WNOHANG)
        if pid:
            return used.ru_utime + used.ru_stime
        time.sleep(0.01)
    words = " ".join(orphan.cmdline())
    orphan.kill()
    raise BenchmarkError(f"a process was left and did not end: {words}")


def succeed(measured: FinishedProcess, codes: Sequence[int] = (0,)) -> FinishedProcess:
    """Return the measurements if the process ended with one of these exit codes.

    Raises:
        BenchmarkError: it ended with another exit code.
    """
    if measured.code not in codes:
        lines = measured.stderr.strip().splitlines() or ["no message"]
        raise BenchmarkError(f"exit code {measured.code}: {lines[-1]}")
    return measured


def info(session: Path) -> dict[str, Any]:
    """Return the output of ``recorder info`` for a session."""
    done = succeed(run_measured(recorder("info", session, "--format", "json")))
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def describe_machine() -> dict[str, Any]:
    """Return a description of the machine and the software."""
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except ModuleNotFoundError:  # in another environment than ours
            continue
    return {
        "cpus": psutil.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": packages,
        "load": round(os.getloadavg()[0], 2),
        "commit": _commit(),
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip()
