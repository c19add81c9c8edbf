"""Which thread writes which attribute of the writer: the table of `ActiveSession`, checked.

While `Ownership.watch` is in force, a simulated thread that writes an attribute, or what is in a
dict or set of an attribute, without owning that attribute, ends with an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from recorder.recording.writer.active_session import ActiveSession, CommitTimes, Credit, Peer
from recorder.recording.writer.pending_split import PendingSplit
from tests.drivers.kit.actors import Actor, current

WATCHED = (ActiveSession, CommitTimes, Credit, Peer, PendingSplit)
FIXED, RECEIVE = "fixed", "receive"
_ROW = re.compile(r"^ +([\w.]+) +(fixed|receive|append|sync|close|make)  +\S")
_MUTATORS: dict[type, tuple[str, ...]] = {
    dict: ("__setitem__", "__delitem__", "clear", "pop", "popitem", "setdefault", "update"),
    set: ("add", "clear", "discard", "pop", "remove", "update", "__ior__", "__iand__"),
    list: ("__setitem__", "__delitem__", "append", "clear", "extend", "pop", "remove"),
}


def owners() -> dict[str, str]:
    """By ``Class.attribute``, the thread that writes it, as the docstring says."""
    found = {}
    for line in (ActiveSession.__doc__ or "").splitlines():
        if (row := _ROW.match(line)) is not None:
            name, owner = row.groups()
            found[name if "." in name else f"ActiveSession.{name}"] = owner
    return found


def attributes(thing: object) -> set[str]:
    """Attributes that an object has, as ``Class.attribute``."""
    names = getattr(thing, "__slots__", None) or vars(thing)
    return {f"{type(thing).__name__}.{name}" for name in names}


class Ownership:
    """Checks every write, and keeps who has written what.

    Attributes:
        written: by ``Class.attribute``, names of the threads that wrote it after it was set first.
        made: the watched objects, newest last, by class.
    """

    def __init__(self) -> None:
        self._owners = owners()
        self.written: dict[str, set[str]] = {}
        self.made: dict[type, Any] = {}

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for kind in WATCHED:
            monkeypatch.setattr(kind, "__setattr__", self._setattr(kind))

    def _setattr(self, kind: type) -> Callable[[Any, str, Any], None]:
        def write(thing: Any, name: str, value: Any) -> None:
            key = f"{kind.__name__}.{name}"
            self.made[kind] = thing
            if hasattr(thing, name):
                self.check(key)
            object.__setattr__(thing, name, self._guarded(key, value))

        return write

    def _guarded(self, key: str, value: Any) -> Any:
        if self._owners.get(key) == FIXED or type(value) not in _MUTATORS:
            return value
        return _GUARDS[type(value)](value, lambda: self.check(key))

    def check(self, key: str) -> None:
        """The running thread writes an attribute; of the test's own thread all is allowed."""
        actor: Actor | None = getattr(current, "actor", None)
        if actor is None:
            return
        thread = RECEIVE if actor.name == "writer" else actor.name
        self.written.setdefault(key, set()).add(thread)
        owner = self._owners.get(key, "unassigned")
        assert thread == owner, f"{key} is {owner}, but the thread {thread} has written it"


def _guard(base: Any) -> Any:
    """A subclass of a container that calls `check` before each change."""

    def __init__(self: Any, value: Any, check: Callable[[], None]) -> None:  # noqa: N807
        base.__init__(self, value)
        self._check = check

    def checked(name: str) -> Callable[..., Any]:
        real = getattr(base, name)

        def change(self: Any, *args: Any) -> Any:
            self._check()
            return real(self, *args)

        return change

    methods = {name: checked(name) for name in _MUTATORS[base]}
    return type(f"Guarded{base.__name__}", (base,), {"__init__": __init__, **methods})


_GUARDS = {base: _guard(base) for base in _MUTATORS}
