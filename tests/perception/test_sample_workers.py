"""The pool of processes that make products: order, sharing, errors, deaths, ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.archives.sample_workers import (
    SampleError,
    SampleWorkers,
    WorkerContext,
    processes_for,
)
from recorder.archives.worker_process import receive, send
from recorder.common.errors import FormatError, RecorderError
from recorder.session.part import WHOLE, Moment, Part
from recorder.session.reader import Session
from tests.session.build import full_session

SECONDS = 2.0


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full_session(tmp_path_factory.mktemp("workers") / "drive", SECONDS).path


@pytest.fixture(scope="module", params=[0, 2], ids=["in the caller", "two processes"])
def workers(request: pytest.FixtureRequest, session: Path) -> Iterator[SampleWorkers]:
    with SampleWorkers(session, WHOLE, request.param) as made:
        yield made


class Scaled:
    """Ranges times a factor, with the process that made them; some samples fail."""

    def __init__(
        self, stream: str, factor: int, broken: tuple[int, ...], worker: WorkerContext
    ) -> None:
        self.worker, self.factor, self.broken = worker, factor, broken
        self.stream = worker.session.streams[stream]
        self.channel = self.stream.data_channels[0]

    def __call__(self, indices: Sequence[int]) -> list[Any]:
        for index in indices:
            if index in self.broken:
                raise FormatError(f"sample {index} is broken")
        self.worker.remark(f"made {len(indices)}")
        return [
            (index, os.getpid(), self.stream.sample(index)[self.channel] * self.factor)
            for index in indices
        ]


def asked(stream: str, factor: int = 1, *broken: int) -> Any:
    return partial(Scaled, stream, factor, broken)


def truth(session: Path, stream: str, index: int) -> Any:
    with Session(session) as opened:
        found = opened.streams[stream]
        return found.sample(index)[found.data_channels[0]]


def test_products_are_in_order_and_are_what_the_session_holds(
    workers: SampleWorkers, session: Path
) -> None:
    wanted = range(3, 19)
    made = list(workers.encode_samples("lidar", asked("lidar", 3), wanted, group=4))
    assert [index for index, _, _ in made] == list(wanted)
    for index, _, values in made:
        np.testing.assert_array_equal(values, truth(session, "lidar", index) * 3)


def test_several_consumers_take_turns(workers: SampleWorkers) -> None:
    feeds = [
        workers.encode_samples("lidar", asked("lidar", k), range(20), group=4) for k in (1, 2, 3)
    ]
    feeds.append(workers.encode_samples("radar", asked("radar"), range(20), group=8))
    taken = [[one[0] for one in more] for more in zip(*feeds, strict=True)]
    assert taken == [[k] * 4 for k in range(20)]


@given(st.sets(st.integers(0, 19), min_size=1), st.integers(1, 7))
def test_any_rising_samples_in_any_groups(
    workers: SampleWorkers, indices: set[int], group: int
) -> None:
    made = workers.encode_samples("lidar", asked("lidar"), sorted(indices), group=group)
    assert [index for index, _, _ in made] == sorted(indices)


def test_a_group_is_made_by_one_process_for_all(session: Path) -> None:
    with SampleWorkers(session, WHOLE, 2) as workers:
        feeds = [
            workers.encode_samples("lidar", asked("lidar", k), range(20), group=4) for k in (1, 2)
        ]
        for one, other in zip(*feeds, strict=True):
            assert one[1] == other[1] != os.getpid()


def test_an_error_names_its_sample_and_comes_in_its_place(workers: SampleWorkers) -> None:
    made = workers.encode_samples("lidar", asked("lidar", 1, 9, 10), range(20), group=4)
    assert [next(made)[0] for _ in range(8)] == list(range(8))
    with pytest.raises(SampleError) as caught:
        next(made)
    assert caught.value.index == 9
    assert isinstance(caught.value.error, FormatError)
    assert str(caught.value.error) == "sample 9 is broken"
    again = workers.encode_samples("lidar", asked("lidar"), [9], group=4)
    assert [index for index, _, _ in again] == [9]


def test_remarks_are_told(workers: SampleWorkers) -> None:
    told: list[str] = []
    list(workers.encode_samples("lidar", asked("lidar"), range(6), group=4, remark=told.append))
    assert told == ["made 4", "made 2"]


def test_a_part_has_numbers_of_its_own(session: Path) -> None:
    part = Part(Moment.parse("1"), None, ("lidar",))
    for processes in (0, 1):
        with SampleWorkers(session, part, processes) as workers:
            made = list(workers.encode_samples("lidar", asked("lidar"), range(3), group=4))
        for index, _, values in made:
            np.testing.assert_array_equal(values, truth(session, "lidar", index + 10))


class Stuck:
    def __call__(self, indices: Sequence[int]) -> list[int]:
        signal.pause()
        return list(indices)


def stuck(_: WorkerContext) -> Stuck:
    return Stuck()


def test_a_killed_worker_fails_all_that_wait(session: Path) -> None:
    with SampleWorkers(session, WHOLE, 2) as workers:
        waiting = [workers.submit("lidar", stuck, [k], group=1) for k in range(6)]
        os.kill(workers.pids[0], signal.SIGKILL)
        for pending in waiting[2:]:
            with pytest.raises(RecorderError, match="a process that packs samples ended: SIGKILL"):
                pending.result()
        with pytest.raises(RecorderError, match="SIGKILL"):
            workers.submit("lidar", stuck, [0], group=1).result()


def test_closing_ends_what_is_being_made(session: Path) -> None:
    before = set(threading.enumerate())
    workers = SampleWorkers(session, WHOLE, 2)
    waiting = [workers.submit("lidar", stuck, [k], group=1) for k in range(6)]
    processes = [psutil.Process(pid) for pid in workers.pids]
    workers.close()
    for pending in waiting:
        with pytest.raises(RecorderError):
            pending.result()
    assert not any(process.is_running() for process in processes)
    assert set(threading.enumerate()) <= before


def test_the_earliest_group_of_all_streams_comes_first(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = SampleWorkers(session, WHOLE, 1)
    monkeypatch.setattr(workers, "_start", lambda: None)
    times = {"lidar": 50, "radar": 20, "imu": 30}
    for stream, first in (("lidar", 7), ("radar", 32), ("imu", 0)):
        time_of = partial(dict.__getitem__, dict.fromkeys(range(64), times[stream]))
        workers.submit(stream, stuck, [first], group=1, time_of=time_of)
    found = [workers._pop_earliest(0) for _ in range(3)]
    assert [one.key for one in found if one is not None] == [
        ("radar", 32),
        ("imu", 0),
        ("lidar", 7),
    ]


def test_no_more_groups_are_made_than_ahead(session: Path) -> None:
    with SampleWorkers(session, WHOLE, 1) as workers:
        made = workers.encode_samples("imu", asked("imu"), range(200), group=1)
        assert next(made)[0] == 0
        last = workers.submit("imu", asked("imu"), [199], group=1)
        last.result()  # the earliest is made first, so that all that was begun is made now
        assert workers.done == 1 + workers.ahead + 1
        made.close()


def test_a_defect_in_a_maker_shows_where_it_is(workers: SampleWorkers) -> None:
    with pytest.raises(SampleError) as caught:
        list(workers.encode_samples("lidar", asked("nobody"), [0], group=4))
    assert "sample_workers" in "".join(getattr(caught.value.error, "__notes__", []))


@given(
    st.lists(
        st.one_of(
            st.integers(), st.text(), st.binary(max_size=70_000).map(bytearray),
            st.integers(0, 5000).map(lambda n: np.arange(n, dtype=np.float32)),
        ),
        max_size=300,
    )
)  # fmt: skip
def test_what_is_sent_is_received(values: list[Any]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=send, args=(ours, values))
        thread.start()
        got = receive(theirs)
        thread.join()
    for one, other in zip(values, got, strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)


def test_only_large_sessions_are_worth_processes(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5})
    assert processes_for(session) == 0
    large = session.parent / "large"
    (large / "lidar").mkdir(parents=True)
    (large / "lidar" / "meta.json").touch()
    with (large / "lidar" / "rng").open("wb") as file:
        file.truncate(64 << 20)
    assert processes_for(large) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    assert processes_for(large) == 0


class Threads:
    def __call__(self, indices: Sequence[int]) -> list[int]:
        return [cv2.getNumThreads() for _ in indices]


def threads(_: WorkerContext) -> Threads:
    return Threads()


def test_libraries_of_a_process_start_no_threads_of_their_own(session: Path) -> None:
    with SampleWorkers(session, WHOLE, 1) as workers:
        assert list(workers.encode_samples("lidar", threads, [0], group=4)) == [1]


def test_what_is_shared_is_made_once_in_a_process(session: Path) -> None:
    worker = WorkerContext(session, WHOLE)
    made = [worker.shared(("radar", 12.0), object) for _ in range(2)]
    assert made[0] is made[1] is not worker.shared(("radar", 13.0), object)
    lidar = worker.session.streams["lidar"]
    assert lidar.sample(3, ["rng"])["rng"] is lidar.sample(3)["rng"]
    worker.close()
