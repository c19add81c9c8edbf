"""The rig load's figures as text."""

from __future__ import annotations

from typing import Any

from benchmarks.frames import SENSORS


def text_report(result: dict[str, Any]) -> str:
    """A table for people.

    Args:
        result: what `benchmarks.rig.measure` gave, with ``machine`` and ``frames`` added.
    """
    ours, theirs, machine = result["ours"], result["theirs"], result["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    lines = [
        f"machine  {machine['cpus']} cpus, {machine['machine']}, {machine['system']}, "
        f"Python {machine['python']}",
        f"         {packages}",
        *(f"{name:8} {origin}" for name, origin in result["frames"].items()),
        "",
        f"CPU seconds per recorded second, over {result['seconds']:g} s",
        f"{'process':12}{'ours':>10}{'theirs':>10}",
    ]
    mine, yours = ours["cpu_by_process"], theirs["cpu_by_process"]
    for name in (*SENSORS, *(n for n in mine if n not in SENSORS)):
        other = f"{yours[name]:10.4f}" if name in yours else f"{'-':>10}"
        lines.append(f"{name:12}{mine[name]:10.4f}{other}")
    lines += [
        f"{'all':12}{ours['cpu']:10.4f}{theirs['cpu']:10.4f}   ratio {result['ratio']:.3f}",
        f"{'MB/s':12}{ours['mb_per_s']:10.2f}{theirs['mb_per_s']:10.2f}",
        "",
        f"checksums afterwards, at idle priority: {ours['checksums_cpu']:.4f}; with them the ratio "
        f"is {result['ratio_with_checksums']:.3f}",
        f"theirs: OpenCV may use {theirs['opencv_threads']} threads (its default); ours: 1",
        _memory(ours),
        "samples  "
        + ", ".join(f"{n} {ours['samples'][n]} of {ours['samples_due'][n]}" for n in SENSORS),
        f"lost     {ours['lost'] or 'nothing'}",
        "",
        *(f"{'holds' if good else 'MISSED':8} {what}" for what, good in result["holds"].items()),
    ]
    return "\n".join(lines)


def _memory(ours: dict[str, Any]) -> str:
    slope = ours["writer_rss_slope_mb_per_minute"]
    text = "" if slope is None else f", slope over the later half {slope:+.2f} MB a minute"
    return f"writer: at most {ours['writer_rss_max_mb']:.1f} MB resident{text}"
