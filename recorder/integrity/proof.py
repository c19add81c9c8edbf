"""Results of a verification, the keys that it trusts, and the check of source sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from recorder.common.errors import FormatError, UsageError
from recorder.common.text_format import format_time
from recorder.integrity.signatures import SIGN
from recorder.integrity.vehicle_key import Signed, read_anchor
from recorder.session.journal.digests import digest
from recorder.session.journal.frames import encode_frame
from recorder.session.stream import Stream

SHOWN: Final = 16
"""Number of digits of a digest or a fingerprint that a line shows."""


@dataclass
class Proof:
    """The result of verifying a session, a clip, an archive, or a folder of them.

    Attributes:
        path: the path of the item; the URL of an item in a store.
        kind: ``session``, ``clip``, ``archive``, ``folder`` or ``store``.
        proven: one line for each proven fact.
        unproven: one line for each unproven fact, with the reason.
        faults: one line for each change, missing or added file, in order of place.
        signed: a signature, of a trusted key if keys are given, covers the item.
        signatures: of the session's journal, in order.
        heads: digests of the journal's records, for comparison with the heads of sources.
        parts: the proofs of its members.
    """

    path: Path | str
    kind: str
    proven: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    signed: bool = False
    signatures: list[Signed] = field(default_factory=list)
    heads: set[str] = field(default_factory=set)
    parts: list[Proof] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """True if no file is changed, missing or added."""
        return not self.faults and all(part.sound for part in self.parts)

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if not self.sound:
            return f"not proven; first: {self.first_fault}"
        if self.signed or self.kind in ("folder", "store"):
            return "proven"
        is_of_signed = any(line.startswith("made from ") for line in self.proven)
        if self.kind == "clip" and is_of_signed:
            return "its samples are proven"
        return "consistent, but not signed: nothing proves it"

    @property
    def first_fault(self) -> str | None:
        """The first fault of the item or of its parts."""
        return next(self._iterate_faults(), None)

    def _iterate_faults(self) -> Iterator[str]:
        yield from self.faults
        for part in self.parts:
            yield from part._iterate_faults()

    def to_wire(self) -> dict[str, Any]:
        """Return a plain mapping for JSON."""
        judged = ("path", "kind", "sound", "verdict", "first_fault", "signed")
        keys = (*judged, "proven", "unproven", "faults")
        signatures = [
            {**s.to_record(), "fingerprint": s.fingerprint, "values": s.values}
            for s in self.signatures
        ]
        parts = [part.to_wire() for part in self.parts]
        return {k: getattr(self, k) for k in keys} | {"signatures": signatures, "parts": parts}


class Trust:
    """The keys that a user trusts.

    Attributes:
        fingerprints: of the keys; empty: every key is accepted.

    Args:
        anchors: fingerprints, or files with public keys.

    Raises:
        UsageError: one is neither.
    """

    def __init__(self, anchors: Iterable[str] = ()) -> None:
        self.fingerprints = frozenset(map(read_anchor, anchors))

    def find_fault(self, signed: Signed) -> str | None:
        """Return why a signature proves nothing; None if it is valid and trusted."""
        try:
            signed.check()
        except UsageError as error:
            return str(error)
        if self.fingerprints and signed.fingerprint not in self.fingerprints:
            return f"is by the key {signed.fingerprint}, which is not trusted"
        return None

    def describe(self, signed: Signed) -> str:
        """Describe the signer, and why the key is trusted."""
        if self.fingerprints:
            return f"the trusted key {signed.fingerprint[:SHOWN]}"
        return f"the key {signed.fingerprint}, taken on its word: no --public-key is given"


FindSource = Callable[[str], Proof | None]
"""A function that returns the proof of a session by its name; None if there is no such session."""


def _digest_signature_record(signed: Signed) -> str:
    """Return the digest of the record ``sign`` of a signature that was the last of its journal."""
    head = bytes.fromhex(str(signed.values.get("head")))
    return digest(encode_frame(SIGN, signed.to_record(), head)).hex()


def check_source(
    proof: Proof, source: dict[str, Any], trust: Trust, find: FindSource, *, vouched: bool = False
) -> Proof | None:
    """Check the source of a clip or an archive, as `describe_source` describes it.

    The signature is checked first.  Where keys are trusted, nothing is accepted without a
    signature.

    Args:
        proof: of the clip or archive; receives the results.
        source: names the session.
        trust: the keys.
        find: returns the proof of the session.
        vouched: the clip or archive is signed itself: an unsigned source is no fault.

    Returns:
        The proof of the session; None if the session is missing or another one.
    """
    name, head, signed = source["session"], source["head"], source["signed"]
    heads = {head}
    if signed is None:
        text = f"made from {name}, which has no {'journal' if head is None else 'signature'}"
        if trust.fingerprints and not vouched:
            proof.faults.append(f"{proof.path}: {text}: nothing proves it")
            return None
        proof.unproven.append(text)
        if head is None:
            return None
    else:
        found = Signed.from_record(signed)
        said = found.values
        if (why := trust.find_fault(found)) is not None or said.get("kind") != "session":
            text = why or "is of something else"
            proof.faults.append(f"{proof.path}: its source {name}: the signature {text}")
            return None
        same = said.get("session"), said.get("root"), _digest_signature_record(found)
        if same != (name, source["root"], head):
            text = "the signature is of another session"
            proof.faults.append(f"{proof.path}: its source {name}: {text}")
            return None
        proof.proven.append(f"made from {name}, which was signed by {trust.describe(found)}")
        heads.add(said.get("head"))
    session = find(str(name))
    if session is None:
        proof.unproven.append(f"made from {name}, which is not here: only its digests are known")
        return None
    if session.faults and not session.heads:
        proof.faults.append(f"{proof.path}: its source: {session.first_fault}")
        return None
    if not heads <= session.heads:
        text = f"was made from another {name} than {session.path}: no record of its journal is"
        proof.faults.append(f"{proof.path}: {text} {str(head)[:SHOWN]}")
        return None
    if session.sound:
        proof.proven.append(f"its source {session.path} is unchanged since")
    else:
        proof.faults.append(f"{proof.path}: its source: {session.first_fault}")
    return session


def add_time(stream: Stream, sample: int, text: str) -> str:
    """Return a fault with the time of its first sample."""
    try:
        return f"{text}, from {format_time(int(stream.times(sample, sample + 1)[0]))} on"
    except (FormatError, OSError, LookupError, ValueError):  # the times are damaged
        return text
