"""Databases of CAN buses (DBC, ARXML, KCD, SYM), read by cantools: messages, choices, names."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from recorder.common.errors import FormatError, SourceError, need_extra

_MOST_NAME: Final = 60
_SHOWN: Final = 8


def load_database(path: Path) -> tuple[Any, str]:
    """Read a database by cantools; return it with the SHA-256 of the file.

    Raises:
        SourceError: cantools is not installed, or the file cannot be read or parsed.
    """
    try:
        from cantools import database
    except ImportError as error:
        raise SourceError(f"decoding signals {need_extra('can')}: {error}") from None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    kind = path.suffix[1:].lower()
    if kind not in ("dbc", "arxml", "kcd", "sym"):
        raise SourceError(f"{path}: is not .dbc, .arxml, .kcd or .sym")
    text = data.decode("cp1252" if kind in ("dbc", "sym") else "utf-8", "replace")
    try:
        # Signals that overlap, or that are longer than their message, are usual in real databases.
        found = database.load_string(text, kind, strict=False)
    except Exception as error:  # noqa: BLE001  its parsers raise errors of every kind
        error = getattr(error, f"e_{kind}", None) or error
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SourceError(f"{path}: is no {kind.upper()} that cantools reads: {reason}") from None
    if not getattr(found, "messages", None):
        raise SourceError(f"{path}: has no message")
    return found, hashlib.sha256(data).hexdigest()


def choose_signals(messages: Sequence[Any], chosen: Sequence[str]) -> dict[int, list[Any]]:
    """Return the chosen signals of each message, by Python's `id` of it, in the message's order.

    Args:
        messages: of the database, as cantools has them.
        chosen: ``MESSAGE.SIGNAL``, ``MESSAGE.*``, a ``SIGNAL`` that one message has, or ``*``.

    Raises:
        FormatError: a name is not in the database, or is ambiguous.
    """
    picked: dict[int, set[int]] = {}
    by_name: dict[str, list[Any]] = {}
    for message in messages:
        by_name.setdefault(str(message.name), []).append(message)
    for text in chosen:
        for message, signals in _matches(text, messages, by_name):
            picked.setdefault(id(message), set()).update(map(id, signals))
    return {
        id(message): [signal for signal in message.signals if id(signal) in picked[id(message)]]
        for message in messages
        if picked.get(id(message))
    }


def _matches(
    text: str, messages: Sequence[Any], by_name: Mapping[str, Sequence[Any]]
) -> list[tuple[Any, list[Any]]]:
    if text == "*":
        return [(message, list(message.signals)) for message in messages if message.signals]
    name, dot, signal = text.partition(".")
    if dot:
        if name not in by_name:
            raise FormatError(f"{text!r}: no message {name!r}{_near(name, by_name)}")
        if len(by_name[name]) > 1:
            raise FormatError(f"{text!r}: {len(by_name[name])} messages have the name {name!r}")
        (message,) = by_name[name]
        signals = [each for each in message.signals if signal in ("*", each.name)]
        if not signals:
            known = [str(each.name) for each in message.signals]
            raise FormatError(f"{text!r}: {name!r} has no signal {signal!r}{_near(signal, known)}")
        return [(message, signals)]
    found = [
        (message, [each])
        for message in messages
        for each in message.signals
        if str(each.name) == text
    ]
    if len(found) > 1:
        names = [f"{message.name}.{text}" for message, _ in found]
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        raise FormatError(f"{text!r}: {len(names)} signals have the name; choose from {shown}")
    if not found:
        known = [str(each.name) for message in messages for each in message.signals]
        hint = f"; {text}.* chooses the message's signals" if text in by_name else ""
        raise FormatError(f"no signal {text!r}{hint or _near(text, known)}")
    return found


def _near(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""


def make_unique_names(texts: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return unique names in lower case for channels and streams.

    Args:
        texts: names of a database.
        taken: names that are not given.
    """
    found: list[str] = []
    used = set(taken)
    for text in texts:
        # EngineSpeed becomes engine_speed; VehSpd2 and ABS_Active become veh_spd2, abs_active.
        split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
        base = re.sub(r"[^a-z0-9]+", "_", split.lower()).strip("_") or "signal"
        base = (base if base[0].isalpha() else f"s_{base}")[:_MOST_NAME].rstrip("_")
        name, number = base, 1
        while name in used:
            number += 1
            name = f"{base[: _MOST_NAME - len(str(number)) - 1]}_{number}"
        used.add(name)
        found.append(name)
    return found
