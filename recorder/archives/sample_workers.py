"""Worker processes that encode samples for archives, and threads that read samples ahead.

The threads of a Python process run one at a time, so that threads that pack wait for each other.
Here an encoder works in a worker process, which reads the session itself; the process that packs
gets the encoded samples in order::

    def point_encoder(scale: float, worker: WorkerContext) -> SampleEncoder:
        stream = worker.session.streams["lidar"]
        return lambda indices: [scaled_points(stream, scale, index) for index in indices]

    factory = partial(point_encoder, 0.5)
    with SampleWorkers(path, WHOLE) as workers:
        for points in workers.encode_samples("lidar", factory, range(1000), group=4):
            ...

Consecutive samples form groups.  All tasks of a group of a stream go to one worker, and each worker
serves the earliest group first: archives that are packed at the same time stay close to each other,
so that a worker decodes a sample once for all of them.  If they drift apart, a sample is decoded
again.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pickle
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count, groupby
from pathlib import Path
from typing import Any, Final, TypeVar

from recorder.archives.worker_process import WorkerProcess, start_server
from recorder.common.errors import RecorderError
from recorder.common.files import Closeable
from recorder.session.part import WHOLE, Part
from recorder.session.reader import Session, sensor_folders
from recorder.session.session_part import SessionPart

LIDAR_GROUP: Final = 1
"""Number of sweeps that one worker encodes together."""
RADAR_GROUP: Final = 16
"""Number of radar frames that one worker encodes together.

A few frames around them are read for their speeds.
"""

_LEAST_BYTES: Final = 64 << 20  # smaller sessions are packed before processes have started
_OWNED: Final = 64  # groups of a stream whose worker is remembered
_ALONE_BYTES: Final = 1 << 20  # decoded values of each stream that a process keeps
_AHEAD: Final = 2  # samples made ahead, and threads that make them: keeps two cores busy
_SHARED_BYTES: Final = 4 << 20  # the same, where several archives need them

Made = TypeVar("Made")
Remark = Callable[[str], None]


SampleEncoder = Callable[[Sequence[int]], Sequence[Any]]
"""An encoder of samples of one stream, in a worker; it returns one value per sample."""


class WorkerContext(Closeable):
    """State that the encoders of a process share.

    Attributes:
        session: opened with virtual sensors, or the part that is packed.  Its streams remember the
            last samples, so that several archives decode them once; do not write to their values.
    """

    def __init__(
        self, path: Path, part: Part, is_shared: bool = False, redacted: Path | None = None
    ) -> None:
        self.session = open_part(path, part, redacted)
        for stream in self.session.streams.values():
            stream.remember(_SHARED_BYTES if is_shared else _ALONE_BYTES)
        self._shared: dict[Hashable, Any] = {}
        self._encoders: dict[bytes, SampleEncoder] = {}
        self._remarks: list[str] = []

    def shared(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return an object that several archives use, made at the first call.

        Args:
            key: names the object: the stream, and all settings that it depends on.
            make: makes the object.
        """
        if key not in self._shared:
            self._shared[key] = make()
        made: Made = self._shared[key]
        return made

    def remark(self, sentence: str) -> None:
        """Send the archive a sentence about the stream."""
        self._remarks.append(sentence)

    def answer(self, task: Task) -> Answer:
        """Do a task; return an error with the sample that causes it, if there is one."""
        self._remarks = []
        try:
            return Answer(list(self._get_encoder(task)(task.indices)), self._remarks)
        except Exception as error:  # noqa: BLE001  (the waiting caller gets it)
            at = self._find_culprit(task, error)
            return Answer([], self._remarks, at, _make_portable(error))

    def _get_encoder(self, task: Task) -> SampleEncoder:
        if (encoder := self._encoders.get(task.factory)) is None:
            encoder = self._encoders[task.factory] = pickle.loads(task.factory)(self)
        return encoder

    def _find_culprit(self, task: Task, error: Exception) -> int | None:
        """Find the sample that causes an error: the first that cannot be encoded alone."""
        if len(task.indices) == 1:
            return task.indices[0]
        for index in task.indices:
            try:
                self._get_encoder(task)([index])
            except Exception as found:  # noqa: BLE001
                return index if str(found) == str(error) else None
        return None

    def close(self) -> None:
        """Close the session."""
        self.session.close()


EncoderFactory = Callable[[WorkerContext], SampleEncoder]
"""A function that creates an encoder; it can be pickled.

It is a function of a module, or a `functools.partial` of one.
"""


@dataclass(frozen=True)
class Task:
    """Samples to encode in a worker.

    Attributes:
        factory: a pickled `EncoderFactory`; equal ones share their encoder.
        indices: the samples.
    """

    factory: bytes
    indices: list[int]


@dataclass(frozen=True)
class Answer:
    """The result of a task; with an error no encoded samples.

    Attributes:
        encoded: one value per sample.
        remarks: sentences about the stream.
        at: the sample that the error is about; None: about no sample.
        error: the error that was raised.
    """

    encoded: list[Any]
    remarks: list[str]
    at: int | None = None
    error: Exception | None = None


class SampleError(Exception):
    """An encoder's error.

    Attributes:
        index: the sample that causes it; None without one.
        error: the error that the encoder raised.
    """

    def __init__(self, index: int | None, error: Exception) -> None:
        super().__init__(str(error))
        self.index, self.error = index, error


class Pending:
    """Samples that are being encoded."""

    def __init__(self, future: Future[Answer], remark: Remark) -> None:
        self._future, self._remark = future, remark

    def result(self) -> list[Any]:
        """Wait for the encoded samples; return one value per sample.

        Raises:
            SampleError: the encoder raised an error.
            RecorderError: a worker ended.
        """
        answer = self._future.result()
        for sentence in answer.remarks:
            self._remark(sentence)
        if answer.error is not None:
            raise SampleError(answer.at, answer.error) from answer.error
        return answer.encoded

    def cancel(self) -> None:
        """Cancel the encoding, if it has not begun."""
        self._future.cancel()


@dataclass(order=True)
class _Waiting:
    t_ns: int
    number: int
    key: tuple[str, int] = field(compare=False)
    task: Task = field(compare=False)
    future: Future[Answer] = field(compare=False)


class SampleWorkers(Closeable):
    """A session's workers; shared by all archives that are packed at the same time.

    Attributes:
        done: number of tasks that processes have done.

    Args:
        path: the session's folder.
        part: the part of it that is packed.
        processes: their number; they start at the first call of `submit`.  With 0, the caller's
            thread encodes samples when it takes them.
        is_shared: several archives are packed at the same time; their samples are kept for longer.
        redacted: as for `Session`.
    """

    def __init__(
        self,
        path: Path,
        part: Part = WHOLE,
        processes: int = 0,
        *,
        is_shared: bool = False,
        redacted: Path | None = None,
    ) -> None:
        self._context: WorkerContext | None = None  # without processes
        self._lock = threading.Condition(threading.RLock())
        self._numbers = count()
        self._waiting: list[_Waiting] = []
        self._owners: dict[str, OrderedDict[int, int]] = {}
        self._fault: str | None = None
        self.done = 0
        self._arguments, self._processes = (path, part, is_shared, redacted), processes
        self._workers: list[WorkerProcess] = []
        self._threads: list[threading.Thread] = []

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [worker.pid for worker in self._workers]

    @property
    def ahead(self) -> int:
        """Number of groups that are encoded ahead of the one that is taken."""
        return self._processes + 1 if self._processes else 0

    def submit(
        self,
        stream: str,
        factory: EncoderFactory,
        indices: Sequence[int],
        *,
        group: int,
        time_of: Callable[[int], int] = int,
        remark: Remark = lambda _: None,
    ) -> Pending:
        """Begin to encode samples.

        Args:
            stream: the samples' stream.
            factory: makes the encoder, once in each process.
            indices: the samples, at least one; all in one group.
            group: number of samples in a group of this stream.
            time_of: returns the time of a sample, which orders the groups of several streams.
            remark: called with sentences about the stream.
        """
        task = Task(pickle.dumps(factory), list(indices))
        future: Future[Answer] = Future()
        with self._lock:
            if self._fault is not None:
                future.set_exception(RecorderError(self._fault))
            elif not self._processes:
                self._context = self._context or WorkerContext(*self._arguments)
                return _Lazy(self._context, task, self._lock, remark)
            else:
                if not self._workers:
                    self._start()
                first = task.indices[0]
                order = time_of(first), next(self._numbers)
                key = stream, first // group
                heappush(self._waiting, _Waiting(*order, key, task, future))
                self._lock.notify_all()
        return Pending(future, remark)

    def encode_samples(
        self,
        stream: str,
        factory: EncoderFactory,
        indices: Iterable[int],
        *,
        group: int,
        time_of: Callable[[int], int] = int,
        remark: Remark = lambda _: None,
    ) -> Generator[Any]:
        """Yield encoded samples, in order; a few groups are encoded ahead.

        Args: as `submit`, but for the samples of any number of groups, which rise.

        Raises:
            SampleError, RecorderError: see `Pending.result`; the samples before were yielded.
        """
        ask = partial(self.submit, stream, factory, group=group, time_of=time_of, remark=remark)
        begun: deque[Pending] = deque()
        try:
            for _, members in groupby(indices, lambda index: index // group):
                begun.append(ask(list(members)))
                if len(begun) > self.ahead:
                    yield from begun.popleft().result()
            while begun:
                yield from begun.popleft().result()
        finally:
            for pending in begun:
                pending.cancel()

    def close(self) -> None:
        """End all workers; samples that wait are not encoded.  May be called again."""
        self._fail("packing has ended")
        for worker in self._workers:
            worker.stop()
        for thread in self._threads:
            thread.join()
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._threads.clear()
        if self._context is not None:
            self._context.close()

    def _start(self) -> None:
        """Start the processes, with a thread for each that sends tasks to it."""
        for number in range(self._processes):
            self._workers.append(WorkerProcess(_create_tuned_context, self._arguments))
            thread = threading.Thread(target=self._serve, args=(number,), name=f"worker-{number}")
            self._threads.append(thread)
            thread.start()

    def _serve(self, number: int) -> None:
        """Send a worker its tasks, one after the other."""
        worker = self._workers[number]
        while (waiting := self._wait_for_task(number)) is not None:
            if not waiting.future.set_running_or_notify_cancel():
                continue
            try:
                answer = worker.ask(waiting.task)
            except EOFError:
                text = f"a process that packs samples ended: {worker.end()}"
                self._fail(text)
                waiting.future.set_exception(RecorderError(text))
            except BaseException as error:  # noqa: BLE001  (the waiting caller gets it)
                waiting.future.set_exception(error)
            else:
                self.done += 1
                waiting.future.set_result(answer)

    def _wait_for_task(self, number: int) -> _Waiting | None:
        """Return the earliest task that no other worker owns; wait for one; None at the end."""
        with self._lock:
            while self._fault is None:
                if (found := self._pop_earliest(number)) is not None:
                    return found
                self._lock.wait()
            return None

    def _pop_earliest(self, number: int) -> _Waiting | None:
        others: list[_Waiting] = []
        found = None
        while self._waiting and found is None:
            waiting = heappop(self._waiting)
            stream, group = waiting.key
            owners = self._owners.setdefault(stream, OrderedDict())
            # The first worker that takes a group gets all its tasks, and decodes its samples once.
            if owners.setdefault(group, number) == number:
                found = waiting
                owners.move_to_end(group)
                if len(owners) > _OWNED:
                    owners.popitem(last=False)
            else:
                others.append(waiting)
        for waiting in others:
            heappush(self._waiting, waiting)
        return found

    def _fail(self, text: str) -> None:
        """Fail all waiting tasks."""
        with self._lock:
            self._fault = self._fault or text
            left, self._waiting = self._waiting, []
            self._lock.notify_all()
        for waiting in left:
            if waiting.future.set_running_or_notify_cancel():
                waiting.future.set_exception(RecorderError(text))


class _Lazy(Pending):
    """Samples that the caller's thread encodes when it takes them."""

    def __init__(
        self,
        context: WorkerContext,
        task: Task,
        lock: contextlib.AbstractContextManager[Any],
        remark: Remark,
    ) -> None:
        future: Future[Answer] = Future()
        super().__init__(future, remark)
        self._context, self._task, self._lock = context, task, lock

    def result(self) -> list[Any]:
        with self._lock:
            if not self._future.done():
                self._future.set_result(self._context.answer(self._task))
        return super().result()


def _create_tuned_context(*arguments: Any) -> WorkerContext:
    """Return the context of a process that does nothing else."""
    tune_for_packing()
    return WorkerContext(*arguments)


@contextlib.contextmanager
def read_ahead(make: Callable[[int], Made], length: int) -> Iterator[Iterator[Future[Made]]]:
    """Prepare the next samples in threads while the current one is processed::

        with read_ahead(lambda index: lidar.sample(index), len(lidar)) as samples:
            for sample in samples:
                sample.result()

    Args:
        make: makes the value of a sample; called by several threads.
        length: number of samples.

    Returns:
        the values in order; at most two more than those taken are made.
    """

    def submit() -> Iterator[Future[Made]]:
        begun: deque[Future[Made]] = deque()
        for index in range(length):
            begun.append(pool.submit(make, index))
            if len(begun) > _AHEAD:
                yield begun.popleft()
        yield from begun

    pool = ThreadPoolExecutor(_AHEAD, "ahead")
    try:
        yield submit()
    finally:
        pool.shutdown(cancel_futures=True)


def open_part(path: Path, part: Part, redacted: Path | None = None) -> Session:
    """Open a session for packing: whole with virtual sensors, or a part.

    All packing reads the session through this function: with a folder of redacted pictures, the
    recorded ones cannot be read.

    Raises:
        SessionError: the part is empty.
    """
    if part.is_whole:
        return Session(path, virtual=True, redacted=redacted)
    return SessionPart(path, part, redacted=redacted)


def processes_for(path: Path) -> int:
    """Return the number of workers for a session: one per processor, none for a small session.

    Args:
        path: the session's folder.
    """
    cores = len(os.sched_getaffinity(0))
    files = (file for folder in sensor_folders(path) for file in folder.iterdir())
    size = sum(file.stat().st_size for file in files)
    return cores if cores > 1 and size >= _LEAST_BYTES else 0


def start_early(modules: Sequence[str]) -> None:
    """Begin to start the process that workers are forked from, with modules imported; do not wait.

    It is started once in a process; later workers start in some ms.
    """
    start_server([__name__, *modules])


def _make_portable(error: Exception) -> Exception:
    """Return an error that can be pickled; an unexpected error gets its traceback as a note."""
    if not isinstance(error, RecorderError | OSError):
        error.add_note("in a worker:\n" + "".join(traceback.format_tb(error.__traceback__)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # parameters of mallopt(3)
_KEPT_BYTES = 8 << 20
_LARGEST_BYTES = 32 << 20  # memory of larger arrays is returned to the kernel at once


def tune_for_packing() -> None:
    """Tune memory, and make OpenCV work in the calling thread.

    OpenCV's own threads would spin while they wait, and take processor time from the packer.
    """
    import cv2  # some archives need no pictures

    tune_memory()
    cv2.setNumThreads(1)


@functools.cache
def tune_memory() -> None:
    """Make the C library keep up to 8 MiB of freed memory, in one heap for all threads.

    Call it before other threads start: threads that have a heap keep it.

    Otherwise a packer that makes arrays of some 100 kB for every frame causes the kernel to map and
    clear their pages for every frame, which may cost more than the work itself.  A heap for each
    thread would keep memory that the other threads could use.  The call has no effect if the C
    library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
        mallopt(_ARENA_MAX, 1)


def release_memory() -> None:
    """Return freed memory to the kernel, also between memory in use; for the end of an archive.

    It has no effect if the C library is not glibc.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
