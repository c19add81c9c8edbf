"""The state of a session in its journal, built up record by record."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import msgpack

from recorder.codecs.storage import known_lengths
from recorder.codecs.streams import TIME_CHANNELS, StreamSpec
from recorder.session import layout
from recorder.session.journal.digests import Digested, Leaf, MerkleTree, Range, digest, digest_leaf
from recorder.session.journal.frames import FIRST, MAX_BODY, Frame
from recorder.session.journal.packed_channels import PackedChannel

_SNAPSHOT = (
    *("commits", "boot_id", "start_mono_ns", "start_ns", "specs", "epochs", "ends", "files"),
    *("positions", "events", "closed", "next", "leaves", "patchable", "digest", "tags_at"),
    *("next_folder", "took", "longest_us", "tree", "known", "uncommitted", "digested", "resumes"),
    *("next_first", "metadata"),
)
_CONVERTED = frozenset(("specs", "epochs", "ends", "leaves", "patchable", "tree", "digested"))
_PRIVATE = frozenset(("known", "uncommitted"))
_OF_EPOCH, _OF_END = ("sample",), ("sent", "reason")
_ONCE = ("patchable", "patched", "tags_at")
EPOCH_DEFAULTS: Mapping[str, Any] = {
    "ended": None,
    "past": [],
    "lost": {},
    "unknown_losses": 0,
    "incomplete": {},
}
_POSITION = ("epoch", "number", "seq", *EPOCH_DEFAULTS, "samples", "last_ns")

NO_LEAF = Leaf(0, 0, digest(b""))
"""The leaf of a file without a committed leaf."""


@dataclass(slots=True)
class Damage:
    """Bytes of a journal that hold no record, before later records."""

    start: int
    end: int


@dataclass(slots=True)
class JournalState:
    """The state of a session in its journal.

    Attributes:
        length: bytes up to the end of its last valid record; a torn record may follow.
        damage: bytes before that end that hold no valid record, of the bytes that were read.
        link: digest of the last record, which the next record holds.
        commits: number of commit records.
        boot_id: of the latest `open`.
        resumes: how often a writer has resumed the session; recovery does not count.
        specs: declared streams by name.
        epochs: by stream, [(epoch, index of its first sample), ...].
        ends: by stream and epoch, (samples sent or None, reason).
        metadata: digests of files that were written at once, by path relative to the session.
        files: committed length by path relative to the session.
        positions: by stream, its position in the last commit.
        events: events of the last commit that were not in their file yet.
        closed: the state of a `close` record, or None.
        session: digest of ``session.json`` when the session was closed.
        next: name of the session that continues it, or None.
        next_folder: the folder of that session, if that is another one.
        next_first: digest of the first record of its journal.
        leaves: by path, the latest leaf that was committed; an empty one where the file was cut.
        patchable: by path, the ranges that digests leave out.
        digest: of all bytes between the leaves and the committed lengths (`digest_jointly`);
            None if leaves reach to the committed lengths, or if it cannot be compared.
        unsure: a lost record may have had later leaves: `digest` need not match.
        tags_at: offsets of the TAGS records in ``session.vrs``; None if unknown.
        took: number of commits that took less than 2**n ms, but at least half of that, by n.
        longest_us: duration of the longest commit.
        tree: of all leaves.
        signed: whether the last record is a signature (`recorder.integrity.signatures`).
        packed: channels that were packed after the session, by path of their data file; the
            committed lengths and the leaves are those of the recorded files.
    """

    digested: ClassVar[bool] = True  # snapshots hold it; every journal has digests
    length: int = 0
    damage: list[Damage] = field(default_factory=list)
    link: bytes = FIRST
    commits: int = 0
    boot_id: str = ""
    resumes: int = 0
    start_mono_ns: int = 0
    start_ns: int = 0
    specs: dict[str, StreamSpec] = field(default_factory=dict)
    epochs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    ends: dict[str, dict[int, tuple[int | None, str]]] = field(default_factory=dict)
    metadata: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    closed: str | None = None
    session: bytes = b""
    next: str | None = None
    next_folder: str | None = None
    next_first: bytes = b""
    leaves: dict[str, Leaf] = field(default_factory=dict)
    patchable: dict[str, list[Range]] = field(default_factory=dict)
    digest: bytes | None = None
    unsure: bool = False
    tags_at: list[int] | None = None
    took: dict[int, int] = field(default_factory=dict)
    longest_us: int = 0
    tree: MerkleTree = field(default_factory=MerkleTree)
    signed: bool = False
    packed: dict[str, PackedChannel] = field(default_factory=dict)
    _known: list[Any] = field(default_factory=list)  # names and epochs that commits have by number
    _numbers: dict[Any, int] = field(default_factory=dict)
    _uncommitted: list[dict[str, Any]] = field(default_factory=list)

    def take(self, frame: Frame) -> Any:
        """Apply the next record; return its content.

        Raises:
            KeyError, TypeError, ValueError, IndexError, ProtocolError: not a record of this
                version, or one that refers to a lost record.
        """
        content: Any = frame.content
        if frame.kind == "commit":
            content = self._expand(content)
        self.link = frame.own
        match frame.kind:
            case "commit":
                self._commit(content)
            case "snapshot":
                self._restore(content)
            case "open":
                self.boot_id = content["boot_id"]
                self.resumes = content.get("resumes", 0)
                self.start_mono_ns = content["start_mono_ns"]
                self.start_ns = content["start_ns"]
                known = [list(gap) for gap in content.get("gaps", ())]
                if self.unsure and all([gap.start, gap.end] in known for gap in self.damage):
                    self.unsure, self.digest = False, None  # that writer resumed from this state
                self.metadata |= content.get("files", {})
                self.files = {**self.files, **content.get("lengths", {})}
                for path, start in content.get("cut", {}).items():
                    self.leaves[path] = Leaf(start, start, digest(b""))
            case "stream":
                spec = StreamSpec.from_wire(content["spec"])
                self.specs[spec.name] = spec
                own = content.get("files", {}).items()
                self.metadata |= {f"{spec.name}/{name}": value for name, value in own}
            case "epoch" | "end":
                keys = _OF_EPOCH if frame.kind == "epoch" else _OF_END
                record = {key: content[key] for key in ("stream", "epoch", *keys)}
                self._uncommitted.append({"k": frame.kind, **record})
            case "resume":
                self._uncommitted.clear()
            case "pack":
                packed = PackedChannel.from_record(content)
                self.packed[packed.channel] = packed
            case "split":
                self.next = str(content["next"])
                self.next_folder = content.get("folder")
                self.next_first = content.get("first", b"")
            case "close":
                self.closed, self.session = content["state"], content.get("session", b"")
        self.length, self.signed = frame.end, frame.kind == "sign"
        return content

    @property
    def written_once(self) -> dict[str, bytes]:
        """Digests of the files that were written at once, ``session.json`` included, by path."""
        header = {f"{layout.PRIVATE}/{layout.SESSION_JSON}": self.session} if self.session else {}
        return self.metadata | header

    def find_next_session(self, session: Path) -> Path | None:
        """Return the folder of the session that continues `session`; None for the last part."""
        return None if self.next is None else Path(self.next_folder or session.parent, self.next)

    def miss(self, start: int, end: int) -> None:
        """Note bytes of the journal before the next record that hold no record."""
        self.damage.append(Damage(start, end))
        self.unsure = True

    def finish(self) -> None:
        """Apply the remaining records of epochs without a commit, at the journal's end."""
        self._take_epochs(self._uncommitted)

    def adopt(self, found: JournalState) -> None:
        """Add epochs and ends that recovery found in the samples, for the next commit."""
        for name, runs in found.epochs.items():
            known = self.epochs.get(name, [])
            self._uncommitted += (
                {"k": "epoch", "stream": name, "epoch": epoch, "sample": sample}
                for epoch, sample in runs
                if (epoch, sample) not in known
            )
        for name, ends in found.ends.items():
            for epoch in ends.keys() - self.ends.get(name, {}).keys():
                record = {"k": "end", "stream": name, "epoch": epoch}
                self._uncommitted.append(record | dict(zip(_OF_END, ends[epoch], strict=True)))

    def durations(self) -> dict[str, float] | None:
        """Return durations of commits; None without a commit.

        They are the count and, in ms, bounds for half and 99% of the commits, and the longest.
        """
        count = sum(self.took.values())
        if not count:
            return None
        bounds: dict[str, float] = {"count": count}
        powers = sorted(self.took)
        counts = list(accumulate(self.took[bits] for bits in powers))
        for key, share in (("half_ms", 0.5), ("most_ms", 0.99)):
            bounds[key] = float(1 << powers[bisect_left(counts, share * count)])
        return bounds | {"longest_ms": self.longest_us / 1e3}

    def known(self, path: str, length: int) -> Digested:
        """Return the known digests of a file that is reopened with a length.

        Raises:
            LookupError: it is cut to before its latest leaf.
        """
        leaf = self.leaves.get(path, NO_LEAF)
        if length < leaf.start:
            raise LookupError(path)
        start = leaf.end if length >= leaf.end else leaf.start
        return Digested(start, self.patchable.get(path, []))

    def _commit(self, content: dict[str, Any]) -> None:
        self.commits += 1
        positions = content["streams"]
        for record in content.get("records", ()):
            if record not in self._uncommitted:
                self._uncommitted.append(record)
        known = self._select_committed(positions)
        self._take_epochs(known)
        self._uncommitted = [r for r in self._uncommitted if r not in known]
        self.files, self.positions, self.events = content["files"], positions, content["events"]
        self.digest = content.get("digest")
        self.tags_at = content.get("tags_at", self.tags_at)
        if took_us := content.get("took_us", 0):
            bits = (took_us // 1000).bit_length()
            self.took[bits] = self.took.get(bits, 0) + 1
            self.longest_us = max(self.longest_us, took_us)
        for path, ranges in content.get("patchable", {}).items():
            self.patchable.setdefault(path, []).extend(ranges)
        for path, leaf in content.get("leaves", ()):
            self.leaves[path] = leaf
            self.tree.append(digest_leaf(path, leaf))

    def _select_committed(self, positions: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the records of epochs that a commit has; other epochs began during the commit."""
        if not self._uncommitted:
            return []
        known = {(name, e) for name, p in positions.items() for e in (p["epoch"], *p["past"])}
        return [r for r in self._uncommitted if (r["stream"], r["epoch"]) in known]

    def _take_epochs(self, records: Iterable[dict[str, Any]]) -> None:
        for record in records:
            if record["k"] == "epoch":
                runs = dict(self.epochs.get(record["stream"], ()))
                runs[record["epoch"]] = record["sample"]
                self.epochs[record["stream"]] = list(runs.items())
            else:
                ends = self.ends.setdefault(record["stream"], {})
                ends[record["epoch"]] = (record["sent"], record["reason"])

    # Commits hold names and epochs by number, and only lengths that samples do not determine.

    def compact(self, content: Mapping[str, Any]) -> list[Any]:
        """Return a commit's content for its frame; `take` is the inverse."""
        new: list[Any] = []

        # A commit states a name at its first use; later commits have its number only.
        def number(value: Any) -> int:
            if (found := self._numbers.get(value)) is not None:
                return found
            if value not in new:
                new.append(value)
            return len(self._known) + new.index(value)

        t_ns = content["t_ns"]
        streams = []
        for name, position in content["streams"].items():
            if tuple(position) != _POSITION or (position["samples"] and name not in self.specs):
                streams.append([number(name), position])
                continue
            more = {k: position[k] for k, v in EPOCH_DEFAULTS.items() if position[k] != v}
            if "past" in more:
                more["past"] = [number(epoch) for epoch in more["past"]]
            last_ns, samples, seq = position["last_ns"], position["samples"], position["seq"]
            row = [number(name), number(position["epoch"]), samples, seq - samples]
            row += [position["number"] - seq, last_ns - t_ns if last_ns >= 0 else None]
            streams.append([*row, more] if more else row)
        derived = _derive_lengths(self.specs, content["streams"])
        files = {number(p): n for p, n in content["files"].items() if derived.get(p) != n}
        absent = [number(path) for path in derived if path not in content["files"]]
        leaves = [
            [number(path), leaf.end - leaf.start, leaf.digest]  # a lost record must not move it
            if leaf.end == content["files"].get(path)
            else [number(path), leaf.start, leaf.end, leaf.digest]
            for path, leaf in content.get("leaves", ())
        ]
        more = {
            key: {number(path): value for path, value in content[key].items()}
            for key in ("patchable", "patched")
            if content.get(key)
        }
        if absent:
            more["absent"] = absent
        if content.get("tags_at") != self.tags_at:
            more["tags_at"] = content.get("tags_at")
        if records := self._select_committed(content["streams"]):
            more["records"] = records  # a power cut may take them, and leave this one
        evidence = leaves or content.get("digest")
        body = [content["n"], t_ns, content.get("took_us", 0), streams, files]
        body += [content["events"], evidence, new]
        return [*body, more] if more else body

    def has_unique_parts(self, body: list[Any]) -> bool:
        """Return whether a commit's content has parts that no later commit repeats."""
        return bool(body[7] or any(key in more for more in body[8:] for key in _ONCE))

    def _expand(self, body: list[Any]) -> dict[str, Any]:
        n, t_ns, took_us, rows, lengths, events, evidence, new, *rest = body
        for value in new:
            self._numbers[value] = len(self._known)
            self._known.append(value)
        known = self._known
        positions: dict[str, dict[str, Any]] = {}
        for row in rows:
            if isinstance(row[1], dict):
                positions[known[row[0]]] = row[1]
                continue
            name, epoch, samples, seq, number, last_ns, *changed = row
            if samples and known[name] not in self.specs:
                raise LookupError(f"{known[name]} is declared in a record that is lost")
            values = dict(EPOCH_DEFAULTS) | (changed[0] if changed else {})
            values |= {"past": [known[e] for e in values["past"]], "lost": dict(values["lost"])}
            values["incomplete"] = dict(values["incomplete"])
            positions[known[name]] = {
                "epoch": known[epoch],
                "number": number + seq + samples,
                "seq": seq + samples,
                **values,
                "samples": samples,
                "last_ns": -1 if last_ns is None else last_ns + t_ns,
            }
        more = rest[0] if rest else {}
        files = _derive_lengths(self.specs, positions)
        for path in more.get("absent", ()):
            del files[known[path]]
        files |= {known[path]: length for path, length in lengths.items()}
        content = {"n": n, "t_ns": t_ns, "took_us": took_us, "streams": positions, "files": files}
        content["events"] = events
        content |= {key: more[key] for key in ("records", "tags_at") if key in more}
        if "patchable" in more:
            ranges = more["patchable"].items()
            content["patchable"] = {known[path]: [tuple(r) for r in rs] for path, rs in ranges}
        if "patched" in more:
            content["patched"] = {known[path]: value for path, value in more["patched"].items()}
        if isinstance(evidence, bytes):
            content["digest"] = evidence
        elif evidence:
            content["leaves"] = self._expand_leaves(evidence, files)
        return content

    def _expand_leaves(
        self, rows: list[list[Any]], files: Mapping[str, int]
    ) -> list[tuple[str, Leaf]]:
        leaves: list[tuple[str, Leaf]] = []
        for number, *row in rows:
            path = self._known[number]
            end = files[path] if len(row) == 2 else row[1]
            start = end - row[0] if len(row) == 2 else row[0]
            leaves.append((path, Leaf(start, end, row[-1])))
        return leaves

    # A snapshot is the whole state: readers begin at the last one.

    def snapshot(self) -> bytes:
        """Return the state for a snapshot record; `take` is the inverse."""
        values = {key: getattr(self, f"_{key}" if key in _PRIVATE else key) for key in _SNAPSHOT}
        values["specs"] = [spec.to_wire() for spec in self.specs.values()]
        values["leaves"] = {p: [v.start, v.end, v.digest] for p, v in self.leaves.items()}
        values["tree"] = [self.tree.size, self.tree.peaks]
        return zlib.compress(msgpack.packb(values), 1)

    def _restore(self, packed: bytes) -> None:
        values = msgpack.unpackb(_inflate(packed), strict_map_key=False)
        specs = [StreamSpec.from_wire(spec) for spec in values["specs"]]
        self.specs = {spec.name: spec for spec in specs}
        epochs = values["epochs"].items()
        self.epochs = {name: [tuple(run) for run in runs] for name, runs in epochs}
        self.ends = {
            name: {epoch: tuple(end) for epoch, end in ends.items()}
            for name, ends in values["ends"].items()
        }
        self.leaves = {path: Leaf(*leaf) for path, leaf in values["leaves"].items()}
        self.patchable = {p: [tuple(r) for r in rs] for p, rs in values["patchable"].items()}
        self.tree = MerkleTree(values["tree"][0], list(values["tree"][1]))
        for key in (key for key in _SNAPSHOT if key not in _CONVERTED):
            setattr(self, f"_{key}" if key in _PRIVATE else key, values[key])
        self._numbers = {value: number for number, value in enumerate(self._known)}
        self.unsure = False


def _inflate(packed: bytes) -> bytes:
    """Return the unpacked bytes of a snapshot; ValueError if it is damaged or too large."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed, MAX_BODY)
    except zlib.error as error:
        raise ValueError(f"a snapshot is damaged: {error}") from None
    if not inflater.eof:
        raise ValueError("a snapshot is too large, or lacks its end")
    return data


def _derive_lengths(
    specs: Mapping[str, StreamSpec], positions: Mapping[str, Mapping[str, Any]]
) -> dict[str, int]:
    """Return lengths of the files that follow from each stream's number of samples."""
    lengths = {}
    for name, position in positions.items():
        spec, samples = specs.get(name), position.get("samples", 0)
        if spec is None or not samples:
            continue
        for time, dtype in TIME_CHANNELS.items():
            if time != "t_dev" or spec.device_clock:
                lengths[f"{name}/{time}"] = samples * int(dtype[1:])
        for channel in spec.channels:
            for file, length in known_lengths(channel, samples).items():
                lengths[f"{name}/{file}"] = length
    return lengths


def digest_jointly(leaves: Mapping[str, Leaf]) -> bytes:
    """Return one digest of the bytes of several files after their last leaves.

    Args:
        leaves: by path, that range of each file; empty ranges are left out.
    """
    text = bytearray()
    for path in sorted(leaves):
        leaf = leaves[path]
        text += path.encode() + b"\0" + leaf.start.to_bytes(8, "little")
        text += leaf.end.to_bytes(8, "little") + leaf.digest
    return digest(bytes(text))


def describe_close(session: Path, state: str, journal: JournalState) -> dict[str, Any]:
    """Return the content of a session's last record, after its ``session.json`` is written."""
    header = layout.private(session, layout.SESSION_JSON).read_bytes()
    return {"state": state, "session": digest(header), "root": journal.tree.root}
