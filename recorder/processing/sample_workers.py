"""Processes that make the products of samples: what archives store of a sweep or a radar frame.

Python runs one thread at a time, so that threads that pack wait for each other.  Here a *maker*
makes products in a worker process, which reads the session itself; the process that packs gets
them in order::

    def points(scale: float, shelf: Shelf) -> Maker:
        return PointMaker(shelf.session.streams["lidar"], scale)

    with SampleWorkers(path, WHOLE) as workers:
        for product in workers.products("lidar", partial(points, 0.5), range(1000), group=4):
            ...

Consecutive samples form groups.  All that is asked about a group of a stream goes to one worker,
and each worker serves the earliest group first: archives that are packed at the same time stay
close to each other, so that a worker's `Shelf` decodes a sample once for all of them.  If they
drift apart, a sample is decoded again.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, groupby
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from recorder.contract.closing import Closing
from recorder.contract.errors import RecorderError
from recorder.processing.tuning import tune_for_packing
from recorder.processing.worker_process import WorkerProcess, start_server
from recorder.session.part import WHOLE, Part
from recorder.session.reader import Session, sensor_folders
from recorder.session.session_part import SessionPart

LIDAR_GROUP: Final = 1
"""Sweeps that one worker makes together."""
RADAR_GROUP: Final = 16
"""Frames of a radar that one worker makes together; a few around them are read for their speeds."""

_LEAST_BYTES: Final = 64 << 20  # smaller sessions are packed before processes have started
_OWNED: Final = 64  # groups of a stream whose worker is remembered
_ALONE_BYTES: Final = 1 << 20  # decoded values of each stream that a process keeps
_SHARED_BYTES: Final = 8 << 20  # the same, where several archives need them

Made = TypeVar("Made")
Remark = Callable[[str], None]


class Maker(Protocol):
    """Makes the products of one stream's samples; lives in a worker."""

    def make(self, indices: Sequence[int]) -> Sequence[Any]:
        """The product of each sample; arrays and bytes in it are not copied more than needed."""


class Shelf(Closing):
    """What the makers of a process share.

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
        self._makers: dict[bytes, Maker] = {}
        self._remarks: list[str] = []

    def shared(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What several archives use of a process, made once.

        Args:
            key: what it is: the stream, and all settings that it depends on.
            make: makes it.
        """
        if key not in self._shared:
            self._shared[key] = make()
        made: Made = self._shared[key]
        return made

    def remark(self, sentence: str) -> None:
        """Tell the archive a sentence about the stream."""
        self._remarks.append(sentence)

    def answer(self, task: Task) -> Answer:
        """Do a task; an error is raised with the sample that it is about, if one is to blame."""
        self._remarks = []
        try:
            return Answer(list(self._maker(task).make(task.indices)), self._remarks)
        except Exception as error:  # noqa: BLE001  (who waits is told)
            at = self._culprit(task, error)
            return Answer([], self._remarks, at, _portable(error))

    def _maker(self, task: Task) -> Maker:
        if (maker := self._makers.get(task.factory)) is None:
            maker = self._makers[task.factory] = pickle.loads(task.factory)(self)
        return maker

    def _culprit(self, task: Task, error: Exception) -> int | None:
        """The sample that an error is about: the first that cannot be made alone."""
        if len(task.indices) == 1:
            return task.indices[0]
        for index in task.indices:
            try:
                self._maker(task).make([index])
            except Exception as found:  # noqa: BLE001
                return index if str(found) == str(error) else None
        return None

    def close(self) -> None:
        """Close the session."""
        self.session.close()


Factory = Callable[[Shelf], Maker]
"""Makes a maker: a function of a module, or a `functools.partial` of one, that can be pickled."""


@dataclass(frozen=True)
class Task:
    """Samples to make in a worker.

    Attributes:
        factory: a pickled `Factory`; equal ones share their maker.
        indices: the samples.
    """

    factory: bytes
    indices: list[int]


@dataclass(frozen=True)
class Answer:
    """What a worker made of a task; with an error no products.

    Attributes:
        products: one for each sample.
        remarks: sentences about the stream.
        at: the sample that the error is about; None: about no sample.
        error: what was raised.
    """

    products: list[Any]
    remarks: list[str]
    at: int | None = None
    error: Exception | None = None


class SampleError(Exception):
    """A maker's error.

    Attributes:
        index: the sample that it is about; None: no one.
        error: what the maker raised.
    """

    def __init__(self, index: int | None, error: Exception) -> None:
        super().__init__(str(error))
        self.index, self.error = index, error


class Pending:
    """Products that are being made."""

    def __init__(self, future: Future[Answer], remark: Remark) -> None:
        self._future, self._remark = future, remark

    def result(self) -> list[Any]:
        """The products, one for each sample; waits for them.

        Raises:
            SampleError: a maker raised an error.
            RecorderError: a worker ended.
        """
        answer = self._future.result()
        for sentence in answer.remarks:
            self._remark(sentence)
        if answer.error is not None:
            raise SampleError(answer.at, answer.error) from answer.error
        return answer.products

    def cancel(self) -> None:
        """Do not make them, if that has not begun."""
        self._future.cancel()


@dataclass(order=True)
class _Waiting:
    t_ns: int
    number: int
    key: tuple[str, int] = field(compare=False)
    task: Task = field(compare=False)
    future: Future[Answer] = field(compare=False)


class SampleWorkers(Closing):
    """A session's workers; shared by all archives that are packed at the same time.

    Attributes:
        made: tasks that processes have done.

    Args:
        path: the session's folder.
        part: the part of it that is packed.
        processes: their number; they start when the first products are asked for.  With 0, the
            caller's thread makes products when it takes them.
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
        self._session: Session | None = None  # for the times of samples
        self._shelf: Shelf | None = None
        self._lock = threading.Condition(threading.RLock())
        self._numbers = count()
        self._waiting: list[_Waiting] = []
        self._owners: dict[str, OrderedDict[int, int]] = {}
        self._fault: str | None = None
        self.made = 0
        self._arguments, self._processes = (path, part, is_shared, redacted), processes
        self._workers: list[WorkerProcess] = []
        self._threads: list[threading.Thread] = []

    @property
    def pids(self) -> list[int]:
        """Numbers of the processes."""
        return [worker.pid for worker in self._workers]

    @property
    def ahead(self) -> int:
        """Groups that are made ahead of the one that is taken."""
        return self._processes + 1 if self._processes else 0

    def submit(
        self,
        stream: str,
        factory: Factory,
        indices: Sequence[int],
        *,
        group: int,
        remark: Remark = lambda _: None,
    ) -> Pending:
        """Begin to make products.

        Args:
            stream: the samples' stream.
            factory: makes the maker, once in each process.
            indices: the samples, at least one; all in one group.
            group: number of samples in a group of this stream.
            remark: called with sentences about the stream.
        """
        task = Task(pickle.dumps(factory), list(indices))
        future: Future[Answer] = Future()
        with self._lock:
            if self._fault is not None:
                future.set_exception(RecorderError(self._fault))
            elif not self._processes:
                self._shelf = self._shelf or Shelf(*self._arguments)
                return _Lazy(self._shelf, task, self._lock, remark)
            else:
                if not self._workers:
                    self._start()
                assert self._session is not None
                first = task.indices[0]
                t_ns = int(self._session.streams[stream].times(first, first + 1)[0])
                key = stream, first // group
                heappush(self._waiting, _Waiting(t_ns, next(self._numbers), key, task, future))
                self._lock.notify_all()
        return Pending(future, remark)

    def products(
        self,
        stream: str,
        factory: Factory,
        indices: Iterable[int],
        *,
        group: int,
        remark: Remark = lambda _: None,
    ) -> Generator[Any]:
        """The products of samples, in order; made a few groups ahead.

        Args: as `submit`, but for the samples of any number of groups, which rise.

        Raises:
            SampleError, RecorderError: see `Pending.result`; what was made before was given.
        """
        begun: deque[Pending] = deque()
        try:
            for _, members in groupby(indices, lambda index: index // group):
                begun.append(
                    self.submit(stream, factory, list(members), group=group, remark=remark)
                )
                if len(begun) > self.ahead:
                    yield from begun.popleft().result()
            while begun:
                yield from begun.popleft().result()
        finally:
            for pending in begun:
                pending.cancel()

    def close(self) -> None:
        """End all workers; what is not made yet is not made.  May be called again."""
        self._fail("packing has ended")
        for worker in self._workers:
            worker.stop()
        for thread in self._threads:
            thread.join()
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._threads.clear()
        for opened in (self._shelf, self._session):
            if opened is not None:
                opened.close()

    def _start(self) -> None:
        """Start the processes, with a thread for each that gives it its tasks."""
        path, part, _, redacted = self._arguments
        self._session = open_part(path, part, redacted)
        for number in range(self._processes):
            self._workers.append(WorkerProcess(_tuned_shelf, self._arguments))
            thread = threading.Thread(target=self._serve, args=(number,), name=f"worker-{number}")
            self._threads.append(thread)
            thread.start()

    def _serve(self, number: int) -> None:
        """Give a worker its tasks, one after the other."""
        worker = self._workers[number]
        while (waiting := self._next(number)) is not None:
            if not waiting.future.set_running_or_notify_cancel():
                continue
            try:
                answer = worker.ask(waiting.task)
            except EOFError:
                text = f"a process that packs samples ended: {worker.end()}"
                self._fail(text)
                waiting.future.set_exception(RecorderError(text))
            except BaseException as error:  # noqa: BLE001  (who waits is told)
                waiting.future.set_exception(error)
            else:
                self.made += 1
                waiting.future.set_result(answer)

    def _next(self, number: int) -> _Waiting | None:
        """The earliest task that no other worker is to do; waits for one; None at the end."""
        with self._lock:
            while self._fault is None:
                if (found := self._earliest(number)) is not None:
                    return found
                self._lock.wait()
            return None

    def _earliest(self, number: int) -> _Waiting | None:
        others: list[_Waiting] = []
        found = None
        while self._waiting and found is None:
            waiting = heappop(self._waiting)
            stream, group = waiting.key
            owners = self._owners.setdefault(stream, OrderedDict())
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
        """Let all that waits fail."""
        with self._lock:
            self._fault = self._fault or text
            left, self._waiting = self._waiting, []
            self._lock.notify_all()
        for waiting in left:
            if waiting.future.set_running_or_notify_cancel():
                waiting.future.set_exception(RecorderError(text))


class _Lazy(Pending):
    """Products that the caller's thread makes when it takes them."""

    def __init__(
        self, shelf: Shelf, task: Task, lock: contextlib.AbstractContextManager[Any], remark: Remark
    ) -> None:
        future: Future[Answer] = Future()
        super().__init__(future, remark)
        self._shelf, self._task, self._lock = shelf, task, lock

    def result(self) -> list[Any]:
        with self._lock:
            if not self._future.done():
                self._future.set_result(self._shelf.answer(self._task))
        return super().result()


def _tuned_shelf(*arguments: Any) -> Shelf:
    """The shelf of a process that does nothing else."""
    tune_for_packing()
    return Shelf(*arguments)


def open_part(path: Path, part: Part, redacted: Path | None = None) -> Session:
    """A session as it is packed: whole with virtual sensors, or a part.

    All that is packed is read through this: with a folder of redacted pictures, there is no way to
    the recorded ones.

    Raises:
        SessionError: the part is empty.
    """
    if part.is_whole:
        return Session(path, virtual=True, redacted=redacted)
    return SessionPart(path, part, redacted=redacted)


def processes_for(path: Path) -> int:
    """How many workers a session is worth: one for each processor, none for a small session.

    Args:
        path: the session's folder.
    """
    cores = len(os.sched_getaffinity(0))
    files = (file for folder in sensor_folders(path) for file in folder.iterdir())
    size = sum(file.stat().st_size for file in files)
    return cores if cores > 1 and size >= _LEAST_BYTES else 0


def start_early(modules: Sequence[str]) -> None:
    """Begin to start what workers are forked from, with modules imported; does not wait.

    Once in a process; later workers start in some ms.
    """
    start_server([__name__, *modules])


def _portable(error: Exception) -> Exception:
    """An error that crosses to another process; with its traceback, where it is a defect."""
    if not isinstance(error, RecorderError | OSError):
        error.add_note("in a worker:\n" + "".join(traceback.format_tb(error.__traceback__)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
