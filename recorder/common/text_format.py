"""Text formats for users: sizes, durations, times, and names from outside.

Control characters in names, metadata, marks and messages are escaped (`clean`): none reaches a
terminal or a page.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

_ACTIVE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """Escape the characters that a terminal would act upon, in Python's notation.

    These are control characters (C0, DEL and C1, newlines too), line and paragraph separators,
    marks and overrides of the writing direction, and halves of surrogate pairs.

    >>> print(clean("a\\x1b[2Jb"))
    a\\x1b[2Jb
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if is_active(c) else c for c in text)


def is_active(character: str) -> bool:
    """Return whether a terminal or a browser acts upon a character instead of showing it."""
    return unicodedata.category(character) in _ACTIVE or character in _DIRECTIONS


def format_bytes(count: float | None) -> str:
    """Format a size in SI units: ``15.7 MB``."""
    if count is None:
        return "-"
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        # Compare the printed value: 999.96 kB would be printed as "1000.0 kB".
        if abs(size) < (999.5 if unit == "B" else 999.95):
            break
        size /= 1000
    else:
        unit = "PB"
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def format_rate(bytes_per_second: float | None) -> str:
    """Format a data rate in MB/s (1e6 bytes): ``15.70``, or ``0.0036`` if it is small."""
    if bytes_per_second is None:
        return "-"
    rate = bytes_per_second / 1e6
    return f"{rate:.2f}" if rate >= 0.1 or rate == 0 else f"{rate:.4f}"


def format_seconds(seconds: float | None) -> str:
    """Format a duration: ``250 ms``, ``7.4 s``, ``3 min 05 s``, ``2 h 10 min``, ``3 d 04 h``."""
    if seconds is None:
        return "-"
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 0.9995:
        return f"{sign}{seconds * 1e3:.0f} ms"
    if seconds < 59.95:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{sign}{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{sign}{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{sign}{hours // 24} d {hours % 24:02d} h"


def format_time(t_ns: int | None) -> str:
    """Format epoch ns in UTC to the millisecond: ``2024-05-01 12:00:00.250 UTC``."""
    if t_ns is None:
        return "-"
    seconds, rest = divmod(t_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{rest // 1_000_000:03d} UTC"
