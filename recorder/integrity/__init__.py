"""Verification that recordings, clips and archives are unchanged, by digests and signatures.

::

    proof = verify(Path("sessions"), Trust(["vehicle.pub"]))
    proof.sound, proof.faults
"""
