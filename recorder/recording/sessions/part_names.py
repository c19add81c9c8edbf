"""Names of recordings and of their parts.

A recording without splits is one session, ``NAME``.  Parts are ``NAME_p001``, ``NAME_p002``.  A
recording that continues after a crash begins its next part, so ``NAME`` and ``NAME_p002`` may exist
side by side.
"""

from __future__ import annotations

from collections.abc import Collection

from recorder.config.names import MAX_NAME, PART


def part_name(name: str, number: int) -> str:
    """Return the name of a recording's part; a long name is cut to fit the number."""
    suffix = f"_p{number:03d}"
    return name[: MAX_NAME - len(suffix)] + suffix


def is_taken(name: str, taken: Collection[str]) -> bool:
    """Return whether there is a session of that name, or a part of such a recording."""
    if name in taken:
        return True
    return any(
        PART.fullmatch(other.removeprefix(name)) for other in taken if other.startswith(name)
    )


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the first free name of ``NAME``, ``NAME_2``, ``NAME_3``, ...."""
    if not is_taken(name, taken):
        return name
    number = 2
    while is_taken(shown := f"{name[: MAX_NAME - 6]}_{number}", taken):
        number += 1
    return shown


def next_part(name: str, taken: Collection[str], after: int) -> int:
    """Return the number of the next part, above `after` and every existing part.

    Args:
        name: name of the recording.
        taken: names in the root.
        after: number of the latest known part.
    """
    highest = after
    for other in taken:
        match = PART.search(other, max(0, len(other) - 8))
        if match and match.end() == len(other):
            number = int(match[1])
            if other == part_name(name, number):
                highest = max(highest, number)
    return highest + 1
