"""Checks that the values in trigger conditions are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.expressions import SESSION, Reference, compile_expression
from recorder.config.settings import TriggerSettings

SMALL_BYTES: Final = 4096
"""Size limit for the sample of a channel in a condition, bytes."""


def find_trigger_faults(
    triggers: Sequence[TriggerSettings], specs: Mapping[str, StreamSpec]
) -> Iterator[tuple[str, str]]:
    """Yield the config key and a description of each reference that cannot be evaluated.

    Args:
        triggers: triggers of a config.
        specs: all streams that the config records, by name.
    """
    for trigger in triggers:
        for part in ("when", "until"):
            text = getattr(trigger, part)
            for reference in compile_expression(text).references if text is not None else ():
                fault = ""
                if (spec := specs.get(reference.stream)) is None:
                    if reference.stream != SESSION:
                        fault = (
                            f"{reference}: there are only the streams {', '.join(sorted(specs))}"
                        )
                elif reference.kind == "channel":
                    fault = find_channel_fault(reference, {c.name: c for c in spec.channels})
                if fault:
                    yield f"triggers.{trigger.name}.{part}", fault


def find_channel_fault(reference: Reference, channels: Mapping[str, ChannelSpec]) -> str:
    """Return why the channels of a stream do not satisfy a reference; empty if they do."""
    channel = channels.get(reference.path[0])
    if channel is None:
        return f"{reference}: {reference.stream} has only the channels {', '.join(channels)}"
    if channel.format != "raw" or channel.sample_bytes > SMALL_BYTES:
        return f"{reference}: is not a small channel of raw numbers"
    if len(reference.index) != len(channel.shape):
        if not channel.shape:
            return f"{reference}: is one number, without an index"
        return f"{reference}: needs an index for each axis of {list(channel.shape)}"
    for number, size in zip(reference.index, channel.shape, strict=True):
        if number >= size:
            return f"{reference}: {number} is beyond the axis of {size}"
    return ""
