"""Every target of `make fuzz` takes its samples, the corpus of what once failed, and some more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from recorder.common.errors import FormatError
from tests.campaigns import Campaign
from tests.drivers.fuzzing import GROWTH, resident
from tests.fuzz import device_parsers
from tests.fuzz.targets import Target, load
from tests.fuzz.worker import attempt, drawn

TARGETS = load()
CORPUS = Path(__file__).parent / "corpus"
_SOCKETS = {  # where a process of the recorder listens
    "control-socket", "control-tcp", "dashboard-http", "dashboard-live", "foxglove", "metrics",
    "sensor-rtp", "sensor-udp", "writer-socket",
}  # fmt: skip
DEVICES = [
    name for name, each in TARGETS.items() if each.prepare.__module__ == device_parsers.__name__
]
_SOME = {name: 100 if name in DEVICES else 10 for name in TARGETS}


@pytest.mark.parametrize("name", TARGETS)
def test_samples_corpus_and_some_mutations(name: str, tmp_path: Path) -> None:
    target, rng = TARGETS[name], random.Random(f"{name} 1")
    with target.prepare(tmp_path) as (samples, feed):
        inputs = [*samples, *(path.read_bytes() for path in sorted(CORPUS.glob(f"{name}-*.bin")))]
        inputs += [drawn(rng, samples, target.parts) for _ in range(_SOME[name])]
        for data in inputs:
            failure = attempt(target, feed, data)
            assert failure is None, f"{data[:200]!r}: {failure}"
        refused = 0
        for data in samples:
            try:
                feed(data)
            except target.refusals:
                refused += 1
        assert refused < max(len(samples), 1), "at least one sample is right"


@pytest.mark.campaign(weight=15, least=20)
@pytest.mark.parametrize("name", DEVICES)
def test_many_mutations(name: str, tmp_path: Path, campaign: Campaign) -> None:
    """A thousand a seed; what a parser keeps of them has a bound."""
    target, before = TARGETS[name], 0
    with target.prepare(tmp_path) as (samples, feed):
        for seed in campaign.seeds():
            rng = random.Random(f"{name} {seed}")
            for _ in range(1000):
                data = drawn(rng, samples, target.parts)
                failure = attempt(target, feed, data)
                assert failure is None, f"{data[:200]!r}: {failure}"
            before = before or resident()
    assert resident() - before < GROWTH


def test_every_listening_socket_is_a_target() -> None:
    assert TARGETS.keys() >= _SOCKETS


def test_the_corpus_is_small_and_has_a_target() -> None:
    files = list(CORPUS.glob("*"))
    assert sum(path.stat().st_size for path in files) < 200_000
    assert all(path.stem.rpartition("-")[0] in TARGETS for path in files)


def test_what_is_no_refusal_is_a_failure() -> None:
    def broken(data: bytes) -> None:
        raise (FormatError if data == b"a" else ValueError)("odd")

    target = Target("x", None, (FormatError,), ())  # type: ignore[arg-type]
    assert attempt(target, broken, b"a") is None
    assert "ValueError: odd" in str(attempt(target, broken, b"b"))
