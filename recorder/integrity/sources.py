"""Check of the source sessions that a clip or an archive names, by their signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recorder.integrity.proof import SHOWN, Proof, Trust
from recorder.integrity.signatures import SIGN
from recorder.integrity.vehicle_key import Signed
from recorder.session.journal.digests import digest
from recorder.session.journal.frames import encode_frame

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
