"""Proof that a recording is unchanged: its digests, signatures, and what was made from it.

::

    proof = verify(Path("sessions"), Trust(["vehicle.pub"]))
    proof.sound, proof.faults
"""
