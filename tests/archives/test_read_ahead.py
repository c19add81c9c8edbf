"""What is made ahead, by whom, and how much of it is kept."""

from __future__ import annotations

import json
import lzma
import threading
from pathlib import Path

import numpy as np
import pytest

from recorder.archives.sample_workers import read_ahead
from recorder.common.errors import FormatError
from recorder.session.stream import Stream


def test_samples_come_in_order_and_are_made_by_other_threads() -> None:
    makers: set[int] = set()

    def make(index: int) -> int:
        makers.add(threading.get_ident())
        return index * index

    with read_ahead(make, 50) as squares:
        assert [square.result() for square in squares] == [n * n for n in range(50)]
    assert threading.get_ident() not in makers
    assert len(makers) <= 2


def test_the_next_ones_are_made_while_one_is_worked_on() -> None:
    begun = [threading.Event() for _ in range(6)]
    with read_ahead(lambda index: begun[index].set(), 6) as samples:
        next(samples).result()
        assert begun[1].wait(60)
        assert begun[2].wait(60)
        assert not begun[3].is_set()


def test_no_more_than_the_next_ones_are_made_at_a_time() -> None:
    lock, most = threading.Lock(), [0, 0]
    both = threading.Barrier(2, timeout=60)

    def make(_index: int) -> None:
        with lock:
            most[0] += 1
            most[1] = max(most)
        both.wait()
        with lock:
            most[0] -= 1

    with read_ahead(make, 8) as samples:
        for sample in samples:  # each waits for another one that is being made
            sample.result()
    assert most[1] == 2


def test_what_fails_is_told_when_it_is_taken() -> None:
    def make(index: int) -> int:
        if index == 2:
            raise FormatError("sample 2 is damaged")
        return index

    with read_ahead(make, 5) as samples:
        assert (next(samples).result(), next(samples).result()) == (0, 1)
        with pytest.raises(FormatError, match="sample 2 is damaged"):
            next(samples).result()
        assert next(samples).result() == 3


def test_a_block_that_is_left_early_stops_the_making() -> None:
    made: list[int] = []
    with pytest.raises(ZeroDivisionError), read_ahead(made.append, 100) as samples:
        next(samples).result()
        raise ZeroDivisionError
    assert set(made) <= {0, 1, 2}
    assert not any(thread.name.startswith("ahead") for thread in threading.enumerate())


@pytest.mark.parametrize("form", ["raw", "lzma", "lzmaf"])
def test_a_stream_is_read_by_several_threads(tmp_path: Path, form: str) -> None:
    values = np.random.default_rng(0).integers(0, 9, (40, 3000)).astype("<u2")
    streams = [lzma.compress(sample.tobytes()) for sample in values]
    if form == "lzma":  # samples begin and end inside streams
        flat = values.tobytes()
        streams = [lzma.compress(flat[at : at + 9999]) for at in range(0, len(flat), 9999)]
    (tmp_path / "a").write_bytes(values.tobytes() if form == "raw" else b"".join(streams))
    ends = np.cumsum([0, *map(len, streams)])
    (tmp_path / "a_i").write_bytes(ends.astype("<u8").tobytes())
    meta = {"a": {"format": form, "type": "u2", "shape": [3000], "desc": ""}}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    stream = Stream(tmp_path)
    with read_ahead(lambda index: stream.sample(index)["a"], len(stream)) as samples:
        for sample, expected in zip(samples, values, strict=True):
            assert np.array_equal(sample.result(), expected)
    stream.close()
