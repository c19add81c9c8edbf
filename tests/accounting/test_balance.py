"""Stored + counted = sent: from the driver's ring to `validate`, through kills and recovery."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.session.loss_accounts import EpochAccount
from recorder.session.reader import Session
from recorder.session.summary import summarize
from recorder.session.validation import validate
from tests.accounting.rig import NAME, Rig

NOTHING: Callable[[str], bool] = lambda _: False  # noqa: E731
ALL: Callable[[str], bool] = lambda _: True  # noqa: E731


def accounts(path: Path) -> list[EpochAccount]:
    """The accounts of a session that must be sound."""
    report = validate(path, deep=True)
    assert report.problems == [], "\n".join(str(p) for p in report.problems)
    return report.accounts


def stored(path: Path) -> dict[int, list[int]]:
    """Ids on disk, by epoch."""
    with Session(path) as session:
        if NAME not in session.streams:
            return {}
        stream = session.streams[NAME]
        ids = stream.read()["id"][:, 0].tolist()
        starts = [(e["epoch"], e["first_sample"]) for e in stream.epochs or ()]
    stops = [*(start for _, start in starts[1:]), len(ids)]
    return {epoch: ids[start:stop] for (epoch, start), stop in zip(starts, stops, strict=True)}


def summary(path: Path) -> dict[str, Any]:
    with Session(path) as session:
        entry: dict[str, Any] = summarize(session)["streams"][NAME]
        return entry


def test_what_the_device_and_the_ring_lose_is_counted_by_cause(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.data(3)
    rig.lose(2)
    for _ in range(60):
        rig.data(1)
    rig.commit()
    rig.data(4)
    rig.lose(None)
    rig.end("eof")
    path = rig.close()
    (account,) = accounts(path)
    assert (account.sent, account.ended) == (69, "eof")
    assert account.lost["device"] == 2 and account.lost["refused"] > 0
    assert account.stored + account.counted == 69
    assert stored(path) == rig.taken
    entry = summary(path)
    assert entry["lost"] == account.lost
    assert [interval["cause"] for interval in entry["lost_intervals"]] == ["device"]
    assert str(account).endswith("= 69 of 69 sent; ended: eof; uncounted loss (device)")


def test_a_killed_driver_is_an_interval_and_its_successor_balances(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.data(5)
    rig.commit()
    rig.data(5)
    rig.restart_driver()
    rig.data(5)
    rig.lose(1)
    rig.end()
    path = rig.close()
    first, second = accounts(path)
    assert (first.sent, first.ended, first.stored) == (None, "gone", 5)
    assert [(i["cause"], i["estimate"]) for i in first.intervals] == [("driver", 25)]
    assert (second.sent, second.stored, second.lost) == (6, 5, {"device": 1})
    assert "uncounted loss (driver) within 0.260 s, about 25 samples" in str(first)
    assert str(second).endswith(
        "epoch 2 of 2: 5 stored + 1 lost (device 1) = 6 of 6 sent; ended: stopped"
    )


@pytest.mark.parametrize("samples", [0, 1])
def test_a_driver_that_dies_before_its_second_sample_is_an_interval(
    tmp_path: Path, samples: int
) -> None:
    rig = Rig(tmp_path)
    if samples:
        rig.data(samples)
        rig.commit()
    rig.writer.lose_tail(NAME)
    rig.writer.close("clean")
    (interval,) = summary(rig.path)["lost_intervals"]
    assert interval["cause"] == "driver"


def test_a_stream_that_came_to_nothing_has_its_account(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.lose(7)
    rig.end("eof")
    path = rig.close()
    assert not (path / NAME).exists()
    (account,) = accounts(path)
    assert (account.stored, account.lost, account.sent) == (0, {"device": 7}, 7)


def test_losses_beyond_the_last_commit_are_told_by_recovery(tmp_path: Path) -> None:
    """The samples after it are kept; the event between them died with the writer."""
    rig = Rig(tmp_path)
    rig.data(4)
    rig.commit()
    rig.data(2)
    rig.lose(3)
    rig.data(2)
    rig.pump()
    report = rig.recover(ALL)
    assert report.streams[NAME].kept == 8
    (account,) = accounts(rig.path)
    assert account.stored == 8 and account.lost == {"untold": 3} and account.sent is None
    assert [i["cause"] for i in account.intervals] == ["killed"]
    assert stored(rig.path) == rig.taken


def test_an_epoch_beyond_the_last_commit_is_found_by_recovery(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.data(4)
    rig.commit()
    rig.data(2)
    rig.pump()
    rig.restart_driver()
    rig.lose(1)
    rig.data(3)
    rig.pump()
    rig.recover(ALL)
    first, second = accounts(rig.path)
    assert (first.stored, [i["cause"] for i in first.intervals]) == (6, ["driver"])
    assert (second.stored, second.lost) == (3, {"untold": 1})
    assert [i["cause"] for i in second.intervals] == ["killed"]
    assert second.epoch == 102, "its journal record had reached the kernel"


def test_damage_is_a_counted_loss(tmp_path: Path) -> None:
    """Files that are shorter than committed: a disk that lied, or a truncation."""
    rig = Rig(tmp_path)
    rig.data(6)
    rig.commit()
    rig.restart_driver()
    rig.lose(2)
    rig.data(5)
    rig.end("eof")
    rig.commit()
    rig.kill_writer(NOTHING)
    channel = rig.path / NAME / "id"
    channel.write_bytes(channel.read_bytes()[: 64 * 4 + 10])
    rig.recover_only()
    first, second = accounts(rig.path)
    # All of it lies in a range of one digest, which does not tell what of that is whole.
    assert (first.stored, first.lost) == (0, {"damaged": 6})
    assert (second.stored, second.lost, second.sent) == (0, {"device": 2, "damaged": 5}, 7)


def test_writers_that_die_lose_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for k in range(12):
        rig.data(2)
        rig.lose(1)
        if k % 3 == 1:
            rig.commit()
        rig.pump()
        rig.restart_writer(ALL if k % 2 else NOTHING)
    rig.end("eof")
    path = rig.close()
    (account,) = accounts(path)
    assert (account.stored, account.lost, account.sent) == (24, {"device": 12}, 36)
    assert stored(path) == rig.taken


def test_an_epoch_that_a_killed_writer_had_begun_is_told_once(tmp_path: Path) -> None:
    """Its journal record may be there twice, first with an index that was cut."""
    rig = Rig(tmp_path)
    rig.data(4)
    rig.commit()
    rig.data(2)
    rig.pump()
    rig.restart_driver()
    rig.data(3)
    rig.pump()
    rig.restart_writer(ALL)  # back to four samples
    rig.data(1)
    rig.commit()
    rig.restart_writer(NOTHING)
    rig.end()
    path = rig.close()
    first, second = accounts(path)
    assert (first.stored, second.stored, second.sent) == (4, 4, 4)


STEPS = st.one_of(
    st.tuples(st.just("data"), st.integers(1, 6)),
    st.tuples(st.just("lose"), st.sampled_from([1, 1, 4, None])),
    st.tuples(st.just("pump"), st.none()),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("fill"), st.none()),
    st.tuples(st.just("restart_driver"), st.none()),
    st.tuples(st.just("restart_writer"), st.integers(0, 255)),
)


def reached(mask: int) -> Callable[[str], bool]:
    """Some of the files had been handed to the kernel."""
    names = ["ts", "seq", "t_mono", "id", "events.jsonl", "log.jsonl", "commits"]
    return lambda name: bool(mask >> names.index(name) & 1)


@given(
    steps=st.lists(STEPS, max_size=25),
    ending=st.sampled_from(["ended", "gone", "recovered"]),
    mask=st.integers(0, 255),
)
def test_whatever_happens_the_accounts_balance(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, Any]],
    ending: str,
    mask: int,
) -> None:
    root = tmp_path_factory.mktemp("rig")
    rig = Rig(root)
    for name, value in steps:
        match name:
            case "data":
                rig.data(value)
            case "lose":
                rig.lose(value)
            case "fill":
                for _ in range(40):
                    rig.data(1)
            case "restart_writer":
                rig.restart_writer(reached(value))
            case _:
                getattr(rig, name)()
    if ending == "ended":
        rig.end("eof")
    if ending == "recovered":
        rig.pump()
        rig.recover(reached(mask))
    else:
        rig.close()
    found = {account.epoch: account for account in accounts(rig.path)}
    on_disk = stored(rig.path)
    everything = [i for ids in on_disk.values() for i in ids]
    assert everything == sorted(set(everything)), "nothing twice, nothing out of order"
    assert set(everything) <= set(itertools.chain(*rig.taken.values())), "nothing from elsewhere"
    for epoch, sent in rig.sent.items():
        if ending == "recovered" or (epoch not in found and not sent):
            continue
        account = found[epoch]
        assert account.sent == sent and account.stored + account.counted == sent
        assert account.counted == rig.counted[epoch]
        assert on_disk.get(epoch, []) == rig.taken[epoch]
    shutil.rmtree(root)
