"""Account of a topic's messages: recorded and counted numbers add up, whatever the order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drivers.kit.topics.account import (
    JOINING,
    TRANSPORT,
    VANISHED,
    Fate,
    Missing,
    TopicAccount,
)

_A, _B = b"a" * 16, b"b" * 16


def take(account: TopicAccount, *numbers: int, publisher: bytes = _A, t_ns: int = 0) -> list[Fate]:
    return [account.take(publisher, number, t_ns) for number in numbers]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=1, max_size=200),
    st.lists(st.integers(0, 200), max_size=8),
    st.tuples(st.booleans(), st.booleans()),
)
def test_each_number_from_the_first_to_the_last_is_recorded_or_counted_once(
    arrivals: list[tuple[bool, int]], counted_at: list[int], kinds: tuple[bool, bool]
) -> None:
    account = TopicAccount(hold_ns=3)
    account.appear(_A, is_new=kinds[0], has_cache=False)
    account.appear(_B, is_new=kinds[1], has_cache=True)
    recorded: dict[bytes, list[int]] = {_A: [], _B: []}
    missing: list[Missing] = []
    for t_ns, (of_b, number) in enumerate(arrivals):
        publisher = _B if of_b else _A
        if account.take(publisher, number, t_ns) is Fate.RECORDED:
            recorded[publisher].append(number)
        if t_ns in counted_at:
            missing += account.count_missing(t_ns)
    missing += account.count_missing(None)
    assert len(recorded[_A] + recorded[_B]) + account.duplicates + account.late == len(arrivals)
    for publisher, numbers in recorded.items():
        gaps = [each for each in missing if each.publisher == publisher]
        lost = [n for each in gaps for n in range(each.first, each.first + (each.count or 0))]
        if not numbers:
            assert not lost
            continue
        from_start = publisher == _A and kinds[0]
        first = 1 if from_start else min(numbers)
        assert sorted(numbers + lost) == list(range(first, max(numbers) + 1))
        assert {each.cause for each in gaps} <= {TRANSPORT, JOINING}
        assert from_start or all(each.cause == TRANSPORT for each in gaps)


def test_a_gap_is_counted_when_it_was_held_and_not_before() -> None:
    account = TopicAccount(hold_ns=10)
    take(account, 5, 8, t_ns=100)
    assert account.count_missing(109) == []
    assert take(account, 6, t_ns=109) == [Fate.RECORDED]
    assert account.count_missing(110) == [Missing(_A, JOINING, 1, 4), Missing(_A, TRANSPORT, 7, 1)]
    assert account.count_missing(None) == []
    assert take(account, 7, 8, 5) == [Fate.LATE, Fate.DUPLICATE, Fate.DUPLICATE]
    assert (account.late, account.duplicates) == (1, 2)


def test_numbers_before_the_first_are_lost_only_of_a_publisher_that_is_new() -> None:
    for is_new, has_cache, count in [(True, False, 4), (False, False, 0), (True, True, 0)]:
        account = TopicAccount()
        account.appear(_A, is_new=is_new, has_cache=has_cache)
        take(account, 5, 6)
        assert sum(each.count or 0 for each in account.count_missing(None)) == count


def test_a_publisher_that_leaves_may_have_sent_more() -> None:
    account = TopicAccount()
    take(account, 1, 2, 5)
    take(account, 1, publisher=_B)
    assert account.leave(_A, is_acknowledged=False) == [
        Missing(_A, TRANSPORT, 3, 2),
        Missing(_A, VANISHED, 6, None),
    ]
    assert account.leave(_B, is_acknowledged=True) == []
    assert account.leave(_B, is_acknowledged=False) == []
    assert account.publishers == frozenset()


def test_one_that_never_sent_leaves_no_interval() -> None:
    account = TopicAccount()
    account.appear(_A, is_new=True, has_cache=False)
    assert account.leave(_A, is_acknowledged=False) == []


def test_a_publisher_that_comes_again_is_another() -> None:
    account = TopicAccount()
    take(account, 1, 2, 3)
    account.leave(_A, is_acknowledged=False)
    assert take(account, 1, 2, publisher=_B) == [Fate.RECORDED] * 2
    assert account.count_missing(None) == []
