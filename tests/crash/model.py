"""What a crash may leave of a disk, given all that was done to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.crash.simdisk import Op, Tree

SECTOR, PAGE = 512, 4096


@dataclass(slots=True)
class _File:
    durable: bytes = b""
    pending: list[tuple[int, Op]] = field(default_factory=list)  # each with its place in time

    def content(self, until: int | None = None) -> bytes:
        data = bytearray(self.durable)
        for time, op in self.pending:
            if until is None or time < until:
                _play(data, op)
        return bytes(data)


class Model:
    """Plays operations; knows what is durable and what is only in the kernel."""

    def __init__(self, base: Tree) -> None:
        self._folders = {n: dict(names) for n, names in base.folders.items()}
        self._files = {n: _File(data) for n, data in base.files.items()}
        self._names: list[tuple[int, Op]] = []  # that no sync of their folder has made durable
        self._time = 0

    def copy(self) -> Model:
        """A model that goes its own way from here."""
        model = Model(Tree())
        model._folders = {n: dict(names) for n, names in self._folders.items()}
        model._files = {n: _File(f.durable, list(f.pending)) for n, f in self._files.items()}
        model._names, model._time = list(self._names), self._time
        return model

    def apply(self, op: Op) -> None:
        """One operation more."""
        self._time += 1
        match op.kind:
            case "write" | "cut":
                self._files.setdefault(op.node, _File()).pending.append((self._time, op))
            case "sync":
                file = self._files.setdefault(op.node, _File())
                file.durable, file.pending = file.content(), []
            case "folder":
                wanted = {id(o) for _, o in self._names if op.node in (o.parent, o.source)}
                done = _with_earlier([o for _, o in self._names], wanted)
                ids = {id(o) for o in done}
                self._names = [(t, o) for t, o in self._names if id(o) not in ids]
                _enter(self._folders, done)
            case _:
                self._names.append((self._time, op))

    def after_kill(self, random: Random, going_on: Op | None) -> Model:
        """What a SIGKILL leaves in the kernel: also a part of the write that went on."""
        model = self.copy()
        if going_on is not None and going_on.kind == "write":
            part = going_on.data[: random.randrange(len(going_on.data) + 1)]
            model.apply(Op("write", going_on.node, going_on.at, part))
        return model

    def visible(self) -> Tree:
        """What a process sees: all that the kernel has."""
        files = {n: file.content() for n, file in self._files.items()}
        return self._tree([op for _, op in self._names], files)

    def power_cut(self, random: Random) -> Tree:
        """What a power cut may leave: any part of what is not durable, torn and out of order.

        In turn: everything dropped, everything kept, everything up to one moment (and the write
        of that moment torn), or each file and each name for itself.
        """
        style = random.choice(("dropped", "kept", "until", "each", "each", "each", "each"))
        if style == "dropped":
            return self._tree([], {n: file.durable for n, file in self._files.items()})
        if style == "kept":
            return self.visible()
        if style == "until":
            until = self._moment(random)
            names = [op for time, op in self._names if time < until]
            files = {n: _until(file, until, random) for n, file in self._files.items()}
            return self._tree(names, files)
        keep = random.choice((0.1, 0.5, 0.9, 1.0))
        kept = {id(op) for _, op in self._names if random.random() < keep}
        names = _with_earlier([op for _, op in self._names], kept)
        return self._tree(names, {n: _torn(file, random) for n, file in self._files.items()})

    def _moment(self, random: Random) -> int:
        times = [time for file in self._files.values() for time, _ in file.pending]
        times += [time for time, _ in self._names]
        return random.choice(times) if times else self._time

    def _tree(self, names: list[Op], files: dict[int, bytes]) -> Tree:
        folders = {n: dict(entries) for n, entries in self._folders.items()}
        _enter(folders, names)
        return Tree(folders, files)


def _with_earlier(ops: list[Op], wanted: set[int]) -> list[Op]:
    """The wanted operations on names, by `id`, with all that was done to the same node before."""
    found: list[Op] = []
    nodes: set[int] = set()
    for op in reversed(ops):
        if id(op) in wanted or op.node in nodes:
            nodes.add(op.node)
            found.append(op)
    return found[::-1]


def _enter(folders: dict[int, dict[str, int]], ops: list[Op]) -> None:
    """Do what is done to names; a rename is one step, whatever became of the name before."""
    for op in ops:
        if op.kind == "mkdir":
            folders.setdefault(op.node, {})
        if op.kind == "move" and folders.setdefault(op.source, {}).get(op.old) == op.node:
            del folders[op.source][op.old]
        if op.kind == "remove":
            if folders.setdefault(op.parent, {}).get(op.name) == op.node:
                del folders[op.parent][op.name]
            continue
        folders.setdefault(op.parent, {})[op.name] = op.node


def _play(data: bytearray, op: Op) -> None:
    if op.kind == "cut":
        del data[op.at :]
        return
    if len(data) < op.at:  # behind a write that did not come through: a hole
        data.extend(bytes(op.at - len(data)))
    data[op.at : op.at + len(op.data)] = op.data


def _until(file: _File, until: int, random: Random) -> bytes:
    data = bytearray(file.content(until))
    for time, op in file.pending:
        if time == until and op.kind == "write":
            unit = random.choice((1, SECTOR, PAGE))
            end = random.randrange(op.at, op.at + len(op.data) + 1) // unit * unit
            _play(data, Op("write", op.node, op.at, op.data[: max(0, end - op.at)]))
    return bytes(data)


def _torn(file: _File, random: Random) -> bytes:
    """A file with any of its unsynced pages, at any of its lengths, the rest zeros or garbage."""
    if not file.pending:
        return file.durable
    how = random.choice(("dropped", "kept", "until", "length", "pages", "pages", "damaged"))
    if how == "dropped":
        return file.durable
    if how == "kept":
        return file.content()
    if how == "until":
        return _until(file, random.choice(file.pending)[0], random)
    unit = random.choice((SECTOR, PAGE))
    keep = {"length": 0.0, "pages": random.choice((0.5, 0.9)), "damaged": 1.0}[how]
    lengths = [len(file.durable)]
    for _, op in file.pending:
        end = op.at if op.kind == "cut" else max(lengths[-1], op.at + len(op.data))
        lengths.append(end)
    fill = bytes if random.random() < 0.5 else random.randbytes
    data = bytearray(file.durable + fill(max(lengths) - len(file.durable)))
    for _, op in file.pending:
        if op.kind == "cut":
            if random.random() < 0.5:
                data[op.at :] = fill(len(data) - op.at)
            continue
        at = op.at
        while at < op.at + len(op.data):
            end = min((at // unit + 1) * unit, op.at + len(op.data))
            if random.random() < keep:
                data[at:end] = op.data[at - op.at : end - op.at]
                if how == "damaged" and at >= len(file.durable) and random.random() < 0.3:
                    data[random.randrange(at, end)] ^= random.choice((1, 2, 4, 0x80))
            at = end
    length = random.choice((lengths[-1], lengths[-1], random.choice(lengths)))
    if length > len(file.durable) and random.random() < 0.25:
        length = max(len(file.durable), random.randrange(length + 1) // unit * unit)
    return bytes(data[:length])
