"""What is fuzzed: by name, samples of right bytes, and what is done with wrong ones.

A target is a generator: it prepares (a server, a folder), yields its samples and the function that
takes an input, and cleans up.  The function returns, or raises one of the target's own errors, for
whatever bytes; anything else is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from recorder.common.errors import RecorderError

Feed = Callable[[bytes], object]
Prepared = tuple[list[bytes], Feed]


@dataclass(frozen=True, slots=True)
class Target:
    """A parser or a listening socket.

    Attributes:
        name: for the command line and the folder of the corpus.
        prepare: gives samples and the function that takes inputs; its argument is an empty folder.
        refusals: the errors that an input may raise.
        parts: bytes that inputs get inserted.
    """

    name: str
    prepare: Callable[[Path], AbstractContextManager[Prepared]]
    refusals: tuple[type[Exception], ...]
    parts: tuple[bytes, ...]


TARGETS: dict[str, Target] = {}


def target(
    name: str,
    *parts: bytes,
    refusals: tuple[type[Exception], ...] = (RecorderError,),
) -> Callable[[Callable[[Path], Iterator[Prepared]]], None]:
    """Add the decorated generator to the targets."""

    def add(function: Callable[[Path], Iterator[Prepared]]) -> None:
        assert name not in TARGETS
        TARGETS[name] = Target(name, contextmanager(function), refusals, parts)

    return add


def load() -> dict[str, Target]:
    """All targets."""
    from tests.fuzz import device_parsers, file_parsers, sockets  # noqa: F401  they add themselves

    return TARGETS
