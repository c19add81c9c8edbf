"""Forgeries of sessions, clips and archives, chosen by a seed: what somebody without the key tries.

A forger can write to everything but the folder of the key, and has a key of his own.  He changes
something, and may make all digests anew and sign them with his key, or with signatures that the
vehicle made of something else.  Changes without that are those of `mutations`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder.integrity.archives import digest_files
from recorder.integrity.vehicle_key import Signed, VehicleKey
from recorder.session.journal.digests import digest
from recorder.session.journal.journal import read_journal
from recorder.session.outputs import encode_record
from tests.integrity.forging import append, rewrite
from tests.integrity.mutations import OF_BYTES
from tests.integrity.vehicle import journal, signatures

FREE = {"lock", "checksums.csv"}  # not committed, and listed as such
HEADER = "_recorder/session.json"


@dataclass
class Loot:
    """What a forger has.

    Attributes:
        genuine: sessions that the vehicle signed, beside the one that is forged.
        other: sessions of the same streams and names, with other data, signed by his own key.
        key: his own.
    """

    genuine: Sequence[Path]
    other: Sequence[Path]
    key: VehicleKey


class ImpossibleError(Exception):
    """A forgery does not apply to what was chosen."""


# Changes of a file's bytes


def _other_bytes(rng: random.Random, data: bytes) -> bytes:
    if not data or (after := rng.choice(OF_BYTES)(rng, data)) == data:
        raise ImpossibleError
    return after


def _committed(path: Path) -> list[Path]:
    top = ("_archives", "report.html")
    return [
        p for p in sorted(path.rglob("*"))
        if p.is_file() and p.name not in FREE and p.relative_to(path).parts[0] not in top
    ]  # fmt: skip


def _data(path: Path) -> list[Path]:
    return [p for p in _committed(path) if p.parent.name != "_recorder" and p.suffix != ".json"]


def _changed(rng: random.Random, path: Path) -> dict[str, bytes]:
    """Change a file of data; what its digests are to be of."""
    file = rng.choice(_data(path))
    data = file.read_bytes()
    after = bytearray(data)
    if not after:
        raise ImpossibleError
    at = rng.randrange(len(after))
    size = rng.choice((1, 8, len(after)))
    after[at : at + size] = rng.randbytes(len(after[at : at + size]))
    if after == data:
        raise ImpossibleError
    file.write_bytes(after)
    return {file.relative_to(path).as_posix(): bytes(after)}


# Changes of session.json


def _values(value: Any, rng: random.Random) -> Any:
    """Another value, of the same kind or of none."""
    odd: list[Any] = [None, True, 0, -1, 1 << 63, 1e308, "", "\u202e", "x" * 300, [], {}, [[]]]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and rng.random() < 0.6:
        return value + rng.choice((-(10**9), -1, 1, 10**9, 3600 * 10**9))
    if isinstance(value, str) and value and rng.random() < 0.6:
        return rng.choice((value.upper(), value + "\u0301", value[::-1], value + "\0"))
    return rng.choice(odd)


def _edited(rng: random.Random, values: Any) -> Any:
    """A JSON value with one change at any depth."""
    if isinstance(values, dict) and values and rng.random() < 0.8:
        key = rng.choice(sorted(values))
        if rng.random() < 0.2:
            return {k: v for k, v in values.items() if k != key}
        return values | {key: _edited(rng, values[key])}
    if isinstance(values, list) and values and rng.random() < 0.8:
        at = rng.randrange(len(values))
        if rng.random() < 0.3:
            return rng.choice((values[:at] + values[at + 1 :], values[::-1], values * 2))
        return [*values[:at], _edited(rng, values[at]), *values[at + 1 :]]
    return _values(values, rng)


def _edit_text(rng: random.Random, text: str) -> str:
    """JSON text with a change that only some parsers see."""
    match rng.randrange(5):
        case 0:  # the same key twice
            key = rng.choice(sorted(json.loads(text)))
            return text.rstrip()[:-1] + f', "{key}": null}}'
        case 1:
            return text.replace(": 1", ": NaN", 1)
        case 2:
            return "\ufeff" + text
        case 3:
            return text + " {}"
        case _:
            return text.replace('"name"', '"n\\u0061me"', 1).replace('"state"', '"State"', 1)


# Forgeries: each changes a folder, and returns what it did


def change_data_and_journal(rng: random.Random, path: Path, loot: Loot) -> str:
    changed = _changed(rng, path)
    rewrite(path, data=changed)
    return f"{', '.join(changed)} with all digests, {_sign(rng, path, loot)}"


def change_header(rng: random.Random, path: Path, loot: Loot) -> str:
    header = path / HEADER
    text = header.read_text()
    if rng.random() < 0.3:
        header.write_text(_edit_text(rng, text))
    else:
        header.write_text(json.dumps(_edited(rng, json.loads(text))))
    if header.read_text() == text:
        raise ImpossibleError
    if rng.random() < 0.5:
        return "session.json"
    rewrite(path)
    return f"session.json with all digests, {_sign(rng, path, loot)}"


def claim_origin(rng: random.Random, path: Path, loot: Loot) -> str:
    """Name itself, a signed session, or one of his own as the origin of altered data."""
    changed = _changed(rng, path)
    source = rng.choice([*loot.genuine, *loot.other, path])
    of = rng.choice([*loot.genuine, *loot.other])
    signed: Any = rng.choice([None, signatures(of)[-1].to_record()])
    if signed and rng.random() < 0.3:
        signed = loot.key.sign(signatures(of)[-1].values).to_record()
    state = read_journal(journal(source))
    said = Signed.from_record(signed).values if signed else {}
    values = json.loads((path / HEADER).read_text())
    origin = {
        "name": rng.choice((source.name, of.name, said.get("session"), None)),
        "head": rng.choice((state.link.hex(), said.get("head"), None)),
        "root": rng.choice((state.tree.root.hex(), said.get("root"))),
        "signed": signed,
    }
    if rng.random() < 0.5:
        origin["proof"] = rng.choice(("origin-1.proof", "../imu/acc", "/dev/zero"))
    values["origin"] = {"kind": "clip", "from_ns": None, "until_ns": None, "streams": None}
    values["origin"] |= {"sessions": [origin] * rng.choice((1, 1, 1, 2)), "events": []}
    if rng.random() < 0.5:
        values.pop("signing_key", None)
    (path / HEADER).write_text(json.dumps(values))
    rewrite(path, data=changed)
    return f"origin {origin['name']} of {', '.join(changed)}"


def swap_files(rng: random.Random, path: Path, loot: Loot) -> str:
    other = rng.choice([*loot.genuine, *loot.other])
    names = [p.relative_to(path) for p in _committed(path)]
    rng.shuffle(names)
    for name in names:
        if (other / name).is_file() and (other / name).read_bytes() != (path / name).read_bytes():
            shutil.copy(other / name, path / name)
            return f"{name} of {other}"
    raise ImpossibleError


def swap_streams(rng: random.Random, path: Path, loot: Loot) -> str:
    name, other = rng.choice(("camera", "imu", "scan")), rng.choice(loot.other)
    if not (path / name).is_dir() or not (other / name).is_dir():
        raise ImpossibleError
    shutil.rmtree(path / name)
    shutil.copytree(other / name, path / name)
    return f"the stream {name} of {other}"


def replace_session(rng: random.Random, path: Path, loot: Loot) -> str:
    """Another session under this one's name."""
    other = rng.choice([*loot.genuine, *loot.other])
    archives = path / "_archives"
    kept = path.with_name("kept")
    if archives.exists():
        archives.rename(kept)
    shutil.rmtree(path)
    shutil.copytree(other, path, ignore=shutil.ignore_patterns("_archives"))
    if kept.exists():
        kept.rename(archives)
    if rng.random() < 0.7:
        values = json.loads((path / HEADER).read_text()) | {"name": path.name}
        (path / HEADER).write_text(json.dumps(values))
        rewrite(path)
        return f"{other}, renamed, {_sign(rng, path, loot)}"
    if other.name == path.name and other in loot.genuine:
        raise ImpossibleError
    return f"{other}"


def drop_records(rng: random.Random, path: Path, loot: Loot) -> str:
    kinds = {"snapshot", "epoch", "end", "commit", "close", "sign", "pack", "split", "stream"}
    kind = rng.choice(sorted(kinds))
    seen = {"count": 0}
    which = rng.randrange(4)

    def change(found: str, content: Any) -> Any:
        if found == kind:
            seen["count"] += 1
            return None if seen["count"] > which else content
        return content

    before = journal(path).read_bytes()
    with contextlib.suppress(LookupError, ValueError, TypeError):
        rewrite(path, change)
    if journal(path).read_bytes() == before:
        raise ImpossibleError
    return f"records {kind} from {which} on, {_sign(rng, path, loot)}"


def sign_again(rng: random.Random, path: Path, loot: Loot) -> str:
    rewrite(path)
    return _sign(rng, path, loot)


def reopen(rng: random.Random, path: Path, loot: Loot) -> str:
    del loot
    changed = _changed(rng, path)
    rewrite(path, lambda kind, content: None if kind in ("sign", "close") else content, changed)
    values = json.loads((path / HEADER).read_text()) | {"state": "recording", "end_ns": None}
    (path / HEADER).write_text(json.dumps(values))
    return f"open again, with other {', '.join(changed)}"


OF_SESSIONS: Mapping[str, Callable[[random.Random, Path, Loot], str]] = {
    f.__name__: f
    for f in (
        *(change_data_and_journal, change_header, claim_origin, swap_files, swap_streams),
        *(replace_session, drop_records, sign_again, reopen),
    )
}


# Of clips that are not signed: the samples, and what the clip states about itself


def change_samples(rng: random.Random, path: Path, _: Loot) -> str:
    changed = _changed(rng, path)
    names = ("video.avi", "video.avi_i")
    if "session.vrs" in changed or any(name.endswith(names) for name in changed):
        raise ImpossibleError  # not proven, and listed; headers of an AVI hold nothing of a sample
    rewrite(path, data=changed)
    return f"{', '.join(changed)} with all digests"


_STATED = ("from_ns", "until_ns", "streams", "sessions")
_OF_HEADER = ("start_ns", "end_ns", "start_mono_ns", "name", "metadata", "state")


def change_statement(rng: random.Random, path: Path, _: Loot) -> str:
    values = json.loads((path / HEADER).read_text())
    if rng.random() < 0.6:
        place, key = values["origin"], rng.choice(_STATED)
        if key == "sessions":
            place = place["sessions"][0]
            alone = not (path.parent / "drive").exists()  # else its proof is not needed
            key = rng.choice(("name", "head", "root", "signed", "proof")[: 4 + alone])
    else:
        place, key = values, rng.choice(_OF_HEADER)
    before = json.dumps(place[key])
    place[key] = _edited(rng, place[key])
    if json.dumps(place[key]) == before:
        raise ImpossibleError
    (path / HEADER).write_text(json.dumps(values))
    rewrite(path)
    return f"{key}: {place[key]!r:.80} instead of {before:.80}"


def drop_stream(rng: random.Random, path: Path, _: Loot) -> str:
    name = rng.choice(("camera", "imu", "scan"))
    values = json.loads((path / HEADER).read_text())
    values["streams"].pop(name, None)
    for sensor in values["sensors"].values():
        sensor["streams"] = [n for n in sensor.get("streams", ()) if n != name]
    (path / HEADER).write_text(json.dumps(values))
    shutil.rmtree(path / name)
    with contextlib.suppress(LookupError, ValueError, TypeError):
        rewrite(path, lambda kind, content: _without_stream(name, kind, content))
    return f"without the stream {name}"


def _without_stream(name: str, kind: str, content: Any) -> Any:
    own = f"{name}/"
    if kind in ("sign", "snapshot") or (kind in ("epoch", "end") and content["stream"] == name):
        return None
    if kind == "stream" and content["spec"]["name"] == name:
        return None
    if kind != "commit":
        return content
    parts = {
        "streams": {n: p for n, p in content["streams"].items() if n != name},
        "files": {n: p for n, p in content["files"].items() if not n.startswith(own)},
        "leaves": [leaf for leaf in content.get("leaves", ()) if not leaf[0].startswith(own)],
    }
    for key in ("patchable", "patched"):
        if key in content:
            parts[key] = {n: p for n, p in content[key].items() if not n.startswith(own)}
    return content | parts


def change_proof(rng: random.Random, path: Path, _: Loot) -> str:
    proof = path / "_recorder/origin-1.proof"
    proof.write_bytes(_other_bytes(rng, proof.read_bytes()))
    return "bytes of its proof"


def change_configuration(rng: random.Random, path: Path, _: Loot) -> str:
    name = rng.choice(("config.yaml", "calibration.yaml", "imu/meta.json", "scan/meta.json"))
    data = (path / name).read_bytes()
    after = data.replace(b"1", b"2", 1) if b"1" in data else data + b"\n# more\n"
    (path / name).write_bytes(after)
    stream, _slash, file = name.rpartition("/")
    found = hashlib.sha256(after).hexdigest() if name == "calibration.yaml" else None
    if found is not None:
        values = json.loads((path / HEADER).read_text()) | {"calibration_sha256": found}
        (path / HEADER).write_text(json.dumps(values))

    def change(kind: str, content: Any) -> Any:
        is_own = kind == "stream" and content["spec"]["name"] == stream
        if (is_own or (kind == "open" and not stream)) and file in content.get("files", {}):
            return content | {"files": content["files"] | {file: digest(after)}}
        return content

    rewrite(path, change)
    return f"{name} with all digests"


OF_CLIPS: Mapping[str, Callable[[random.Random, Path, Loot], str]] = {
    f.__name__: f
    for f in (
        *(change_samples, change_statement, drop_stream, change_proof, change_configuration),
        *(claim_origin, swap_files),
    )
}


# Of archives, in a session's folder


def change_archive_and_record(rng: random.Random, path: Path, loot: Loot) -> str:
    record = rng.choice(sorted(path.glob("_archives/*.json")))
    place = record.parent / record.stem
    file = rng.choice([p for p in place.rglob("*") if p.is_file()])
    file.write_bytes(_other_bytes(rng, file.read_bytes()))
    values = json.loads(record.read_text())
    statement = json.loads(values["custody"]["statement"])
    statement["files"] = digest_files(sorted(place.iterdir()))
    if rng.random() < 0.3:
        statement["sources"] = rng.choice(([], statement["sources"] * 2))
    text = json.dumps(statement, sort_keys=True, separators=(",", ":"))
    signed = rng.choice(
        (
            Signed(text, "", ""),
            loot.key.sign(statement),
            Signed(text, values["custody"]["signature"], values["custody"]["public_key"]),
            signatures(loot.genuine[0])[-1],
        )
    )
    record.write_bytes(encode_record(values | {"custody": signed.to_record()}))
    return f"{file.name} with its record"


def change_record(rng: random.Random, path: Path, _: Loot) -> str:
    record = rng.choice(sorted(path.glob("_archives/*.json")))
    values = json.loads(record.read_text())
    other = _edited(rng, values)
    if not isinstance(other, dict) or other == values:
        raise ImpossibleError
    record.write_bytes(encode_record(other))
    return "the record's values"


def other_archive(rng: random.Random, path: Path, loot: Loot) -> str:
    sources = [p / "_archives" for p in loot.genuine if (p / "_archives").is_dir()]
    if not sources:
        raise ImpossibleError
    shutil.rmtree(path / "_archives")
    shutil.copytree(rng.choice(sources), path / "_archives")
    return "another session's archives"


OF_ARCHIVES: Mapping[str, Callable[[random.Random, Path, Loot], str]] = {
    f.__name__: f for f in (change_archive_and_record, change_record, other_archive)
}


def _sign(rng: random.Random, path: Path, loot: Loot) -> str:
    """Append a signature that the forger can get, or none."""
    state = read_journal(journal(path))
    genuine = signatures(rng.choice(loot.genuine))[-1]
    own = genuine.values | {
        "session": path.name, "head": state.link.hex(), "root": state.tree.root.hex(),
    }  # fmt: skip
    how = rng.choice(("unsigned", "his own key", "of another", "another key's name", "garbage"))
    signed = {
        "his own key": loot.key.sign(own),
        "of another": genuine,
        "another key's name": Signed(
            loot.key.sign(own).statement, loot.key.sign(own).signature, genuine.public_key
        ),
        "garbage": Signed("{}", "00" * 64, genuine.public_key),
    }.get(how)
    if signed is not None:
        for _again in range(rng.choice((1, 1, 2))):
            append(path, "sign", **signed.to_record())
    return f"signed: {how}"
