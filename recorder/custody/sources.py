"""The check of what a clip or an archive states it was made from, by the signature of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recorder.custody.proof import SHOWN, Proof, Trust
from recorder.session.vehicle_key import Signed

FindSource = Callable[[str], Proof | None]
"""Gives the proof of a session by its name; None if the session is not here."""


def check_source(
    proof: Proof, source: dict[str, Any], trust: Trust, find: FindSource, *, vouched: bool = False
) -> Proof | None:
    """Check what something was made from, as `source_of` describes it.

    The signature comes first: without one nothing else is believed, wherever keys are trusted.

    Args:
        proof: of what was made; receives what is found.
        source: names the session.
        trust: the keys.
        find: gives the session.
        vouched: what was made is signed itself: a source without a signature is no fault.

    Returns:
        The proof of the session; None if the session is not here or not that one.
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
        why, said = trust.why_not(found), found.values
        same = said.get("kind"), said.get("session"), said.get("root")
        if why is not None or same != ("session", name, source["root"]):
            why = why or "is of another session"
            proof.faults.append(f"{proof.path}: its source {name}: the signature {why}")
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
