"""Whether a ring is large enough for what it is to hold."""

from __future__ import annotations

from collections.abc import Sequence

from recorder.contract.config.settings import RingSettings, TriggerSettings
from recorder.daemon.keeping.decisions import SLACK_NS, TRIGGER_NS


def ring_findings(
    ring: RingSettings, triggers: Sequence[TriggerSettings], rate: float
) -> tuple[list[tuple[str, str]], list[str]]:
    """Problems of a ring, as (key, what), and warnings, for `rate` bytes per second.

    A ring is deleted in whole parts, and the open part counts: it needs room for two more.
    """
    problems, warnings = [], []
    spare_s = 2 * ring.part_seconds + (SLACK_NS + TRIGGER_NS) / 1e9
    for trigger in triggers:
        if (needed := (trigger.before + spare_s) * rate) > ring.gb * 1e9:
            problems.append(
                (
                    "ring.gb",
                    f"{ring.gb:g} GB is too small for {trigger.before:g} s before "
                    f"triggers.{trigger.name}: that takes {needed / 1e9:.2f} GB",
                )
            )
    needed = (ring.seconds + spare_s) * rate
    if not problems and needed > ring.gb * 1e9:
        text = f"ring.gb: {ring.seconds:g} s take {needed / 1e9:.2f} GB: the ring will be shorter"
        warnings.append(text)
    return problems, warnings
