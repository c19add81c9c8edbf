"""The sums of what was stored, lost and sent, against a model that knows what became of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.session import loss_accounts
from recorder.session.loss_accounts import (
    EpochAccount,
    Gap,
    Run,
    balance,
    epoch_ids,
    find_losses_beyond_gaps,
    scan,
)
from recorder.session.stream import Stream


@dataclass
class Epoch:
    """One start of a driver: what became of each sample, in order.

    `fates` has for each sample "" (stored) or the cause of its loss; a cause with "?" begins an
    interval in which nobody counted.
    """

    number: int
    fates: list[str]
    sent: bool
    stored: list[int] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        seq = 0
        for fate in self.fates:
            if fate.endswith("?"):
                self._event(fate[:-1], None, seq, None)
                continue
            if not fate:
                self.stored.append(seq)
            elif self.events and self._goes_on(fate, seq):
                self.events[-1]["count"] += 1
                self.events[-1]["last_seq"] += 1
            else:
                self._event(fate, 1, seq, seq)
            seq += 1
        self.length = seq

    def _goes_on(self, cause: str, seq: int) -> bool:
        last = self.events[-1]
        return bool(last["cause"] == cause and last["last_seq"] == seq - 1)

    def _event(self, cause: str, count: int | None, first: int, last: int | None) -> None:
        event = {"type": "lost", "stream": "s", "epoch": self.number, "cause": cause}
        event |= {"count": count, "first_seq": first, "last_seq": last, "t_ns": 1}
        self.events.append(event)


fates = st.lists(
    st.sampled_from(["", "", "", "buffer", "device", "buffer?", "driver?"]), max_size=12
)
epochs = st.lists(st.tuples(fates, st.booleans()), min_size=1, max_size=4)


@dataclass
class Made:
    """A stream of several epochs."""

    epochs: list[Epoch]

    @property
    def seq(self) -> list[int]:
        return [seq for epoch in self.epochs for seq in epoch.stored]

    @property
    def reported(self) -> list[dict[str, Any]]:
        """As ``session.json`` has the epochs."""
        found, at = [], 0
        for epoch in self.epochs:
            sent = epoch.length if epoch.sent else None
            ended = "eof" if epoch.sent else None
            found.append({"epoch": epoch.number, "first_sample": at, "sent": sent, "ended": ended})
            at += len(epoch.stored)
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for epoch in self.epochs for event in epoch.events]

    def stream(self, *, reported: bool = True) -> Stream:
        seq = np.array(self.seq, np.int64)
        channel = SimpleNamespace(read=lambda start, stop: seq[start:stop])
        fake = _Fake(len(seq), channel, self.reported if reported else None)
        return cast("Stream", fake)

    def accounts(self) -> list[EpochAccount]:
        runs = [item for item in scan(self.stream()) if isinstance(item, Run)]
        return list(balance("s", self.reported, len(self.seq), runs, self.events))


class _Fake:
    def __init__(self, length: int, channel: Any, reported: list[dict[str, Any]] | None) -> None:
        self._length = length
        self.meta: dict[str, Any] = {"seq": {}}
        self.channels = {"seq": channel}
        self.epochs = reported

    def __len__(self) -> int:
        return self._length


def made(drawn: list[tuple[list[str], bool]]) -> Made:
    return Made([Epoch(7 + 3 * n, f, sent) for n, (f, sent) in enumerate(drawn)])


def losses(epoch: Epoch) -> dict[str, int]:
    causes = [fate for fate in epoch.fates if fate and not fate.endswith("?")]
    return {cause: causes.count(cause) for cause in causes}


@given(epochs)
def test_each_epoch_adds_up(drawn: list[tuple[list[str], bool]]) -> None:
    stream = made(drawn)
    found = stream.accounts()
    assert [account.epoch for account in found] == [epoch.number for epoch in stream.epochs]
    for number, (account, epoch) in enumerate(zip(found, stream.epochs, strict=True), start=1):
        gone = [fate[:-1] for fate in epoch.fates if fate.endswith("?")]
        assert (account.position, account.of) == (number, len(stream.epochs))
        assert (account.stored, account.lost) == (len(epoch.stored), losses(epoch))
        assert account.sent == (epoch.length if epoch.sent else None)
        assert account.ended == ("eof" if epoch.sent else "gone")
        assert [interval["cause"] for interval in account.intervals] == gone
        if epoch.sent or gone:
            assert account.fault is None, account
        else:
            assert account.fault == "did not end, and no event says that something may be lost"
        assert account.to_wire()["balanced"] == (
            False if account.fault else True if epoch.sent else None
        )


@given(epochs, st.integers(0, 3), st.sampled_from([-2, -1, 1, 2]))
def test_a_sum_that_is_off_is_a_fault_of_its_epoch(
    drawn: list[tuple[list[str], bool]], which: int, off: int
) -> None:
    stream = made(drawn)
    which %= len(stream.epochs)
    epoch = stream.epochs[which]
    if not epoch.sent or epoch.length + off < 0:
        return
    reported = stream.reported
    reported[which]["sent"] += off
    runs = [item for item in scan(stream.stream()) if isinstance(item, Run)]
    found = list(balance("s", reported, len(stream.seq), runs, stream.events))
    words = f"are {epoch.length}, but {epoch.length + off} were sent"
    assert str(found[which].fault).endswith(words)
    good = stream.accounts()
    assert [a for n, a in enumerate(found) if n != which] == [
        a for n, a in enumerate(good) if n != which
    ]


def test_more_than_was_ever_numbered_is_a_fault() -> None:
    """A driver that was gone: numbers say how far it came."""
    stream = made([(["", "", "buffer", "driver?"], False)])
    assert [account.fault for account in stream.accounts()] == [None]
    stream.epochs[0].events[0]["count"] = 2
    (account,) = stream.accounts()
    assert account.fault == "2 stored + 2 counted as lost, but numbers end at 2"


def test_an_interval_begins_at_a_number_that_was_reached() -> None:
    """All before it was sent, though no sample and no counted loss has such a number."""
    stream = made([([""] * 5 + ["driver?"], False)])
    counted, interval = dict(stream.epochs[0].events[0]), stream.epochs[0].events[0]
    counted |= {"cause": "device", "count": 2, "first_seq": None, "last_seq": None}
    stream.epochs[0].events.append(counted)
    for first, fault in ((7, None), (6, "5 stored + 2 counted as lost, but numbers end at 5")):
        interval["first_seq"] = first
        assert [account.fault for account in stream.accounts()] == [fault]


@given(epochs, st.booleans(), st.integers(1, 5))
def test_gaps_and_runs_are_those_of_the_samples(
    drawn: list[tuple[list[str], bool]], reported: bool, window: int
) -> None:
    """Read in windows of any size, and where nobody tells the epochs."""
    stream = made(drawn)
    if not reported:  # an epoch is then told by a number that does not grow
        stream = Made([epoch for epoch in stream.epochs if epoch.stored])
        firsts = [epoch.stored[0] for epoch in stream.epochs[1:]]
        lasts = [epoch.stored[-1] for epoch in stream.epochs[:-1]]
        if any(first > last for first, last in zip(firsts, lasts, strict=True)):
            return
    expected: list[Gap | Run] = []
    at = number = 0
    for epoch in stream.epochs:
        if not epoch.stored:
            continue
        before = -1
        for offset, seq in enumerate(epoch.stored):
            if seq > before + 1:
                expected.append(Gap(at + offset, number, before + 1, seq - 1))
            before = seq
        expected.append(Run(number, at, at + len(epoch.stored), before))
        at, number = at + len(epoch.stored), number + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_accounts, "WINDOW", window)
        found = list(scan(stream.stream(reported=reported)))
    assert found == (expected or [Run(0, 0, 0, -1)])


@given(epochs)
def test_what_no_gap_shows_is_untold(drawn: list[tuple[list[str], bool]]) -> None:
    """Gaps and untold losses together are all that was counted, each once."""
    stream = made(drawn)
    items = list(scan(stream.stream()))
    runs = [item for item in items if isinstance(item, Run)]
    gaps = sum(item.count for item in items if isinstance(item, Gap))
    found = find_losses_beyond_gaps(stream.stream(), runs, stream.events)
    counted = sum(sum(losses(epoch).values()) for epoch in stream.epochs)
    assert gaps + sum(count for _, count in found) == counted
    for event, count in found:
        assert 0 < count <= event["count"]


def test_a_loss_that_a_gap_shows_in_part() -> None:
    """Of the numbers 3 to 9, 3 and 4 are a gap before the last sample, which is 5."""
    stream = made([(["", "", ""], True)])
    stream.epochs[0].stored = [0, 1, 2, 5]
    event = {"epoch": 7, "count": 6, "first_seq": 3, "last_seq": 9}
    runs = [item for item in scan(stream.stream()) if isinstance(item, Run)]
    assert find_losses_beyond_gaps(stream.stream(), runs, [event]) == [(event, 4)]
    again = {"epoch": 7, "count": 3, "first_seq": 8, "last_seq": 12}  # 8 and 9 are told of
    fewer = {"epoch": 7, "count": 1, "first_seq": 10, "last_seq": 20}  # some between were stored
    assert find_losses_beyond_gaps(stream.stream(), runs, [event, again]) == [
        (event, 4),
        (again, 3),
    ]
    assert find_losses_beyond_gaps(stream.stream(), runs, [event, fewer]) == [
        (event, 4),
        (fewer, 1),
    ]
    assert find_losses_beyond_gaps(stream.stream(), runs, [again, event]) == [(again, 3)]


@pytest.mark.parametrize("order", [1, -1])
def test_a_session_that_tells_no_epochs_is_judged_by_its_end(order: int) -> None:
    stream = made([(["", "", ""], True), (["", ""], True)])
    runs = [item for item in scan(stream.stream(reported=False)) if isinstance(item, Run)]
    assert set(epoch_ids(stream.stream(reported=False), runs).values()) == {None}
    events: list[dict[str, Any]] = [
        {"count": 2, "first_seq": 2, "last_seq": 3},
        {"count": 3, "first_seq": 4, "last_seq": 6},
    ][::order]
    found = find_losses_beyond_gaps(stream.stream(reported=False), runs, events)
    expected = [(events[0], 2), (events[1], 3)] if order == 1 else [(events[0], 3)]
    assert found == expected


def test_an_epoch_without_a_sample_shows_nothing() -> None:
    stream = made([([""], True), (["buffer", "buffer"], True), (["", "buffer", ""], True)])
    runs = [item for item in scan(stream.stream()) if isinstance(item, Run)]
    assert epoch_ids(stream.stream(), runs) == {0: 7, 1: 13}
    assert find_losses_beyond_gaps(stream.stream(), runs, stream.events) == [
        (stream.epochs[1].events[0], 2)
    ]
