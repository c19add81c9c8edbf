"""Signals of frames, by a database (DBC) that cantools reads.

cantools gives the places, conversions and units of signals.  The bits of many frames are taken at
once, with the results of cantools' own ``Message.decode`` (which takes about 10 us for a frame).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.can.frames import EXTENDED, ID_MASK, Frames
from recorder.codecs.streams import TIME_CHANNELS
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


_MOST_BITS: Final = 64
_FLOATS: Final[Mapping[int, np.dtype[Any]]] = {
    16: np.dtype("<f2"),
    32: np.dtype("<f4"),
    64: np.dtype("<f8"),
}

Floats = npt.NDArray[np.float64]
_Raw = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a signal in a frame's data, and conversion of its bits to a value.

    Attributes:
        bytes: indices of its bytes, the least significant first.
        shift: bits of the first byte below the signal.
        bits: its length.
        end: bits that a frame must have for the signal.
        signed: two's complement.
        is_float: IEEE 754.
        scale, offset: value = bits * scale + offset.
    """

    bytes: tuple[int, ...]
    shift: int
    bits: int
    end: int
    signed: bool = False
    is_float: bool = False
    scale: float = 1
    offset: float = 0

    @classmethod
    def of(cls, signal: Any) -> Place:
        """Return the place of a cantools ``Signal``.

        Raises:
            FormatError: the signal has more than 64 bits, or a length that no float has.
        """
        bits = signal.length
        is_float = bool(signal.conversion.is_float)
        if not 0 < bits <= _MOST_BITS or (is_float and bits not in _FLOATS):
            kind = "a float of " if is_float else ""
            raise FormatError(f"has {kind}{bits} bits, which is not decoded")
        first = signal.start
        if signal.byte_order != "little_endian":
            first = 8 * (first // 8) + 7 - first % 8  # in the order of transmission
        last = first + bits - 1
        places = range(first // 8, last // 8 + 1)
        little = signal.byte_order == "little_endian"
        return cls(
            tuple(places if little else reversed(places)),
            first % 8 if little else 7 - last % 8,
            bits,
            last + 1,
            bool(signal.is_signed),
            is_float,
            signal.conversion.scale,
            signal.conversion.offset,
        )

    def raw(self, data: npt.NDArray[np.uint8]) -> _Raw:
        """Return the signal's bits, uint64 [n], of data u1 [n, bytes]."""
        found = data[:, self.bytes[0]].astype(np.uint64) >> np.uint64(self.shift)
        for k, byte in enumerate(self.bytes[1:], 1):
            found |= data[:, byte].astype(np.uint64) << np.uint64(8 * k - self.shift)
        if self.bits < _MOST_BITS:
            found &= np.uint64((1 << self.bits) - 1)
        return found

    def values(self, raw: _Raw) -> Floats:
        """Return the values, f8 [n], of a signal's bits."""
        found: Floats
        if self.is_float:
            kind = _FLOATS[self.bits]
            with np.errstate(invalid="ignore"):  # a signaling NaN
                found = raw.astype(f"<u{kind.itemsize}").view(kind).astype(np.float64)
        elif self.signed:
            top = np.uint64(1 << (self.bits - 1))
            found = ((raw ^ top) - top).view(np.int64).astype(np.float64)
        else:
            found = raw.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # of floats that are no values
            if self.scale != 1:
                found *= self.scale
            if self.offset:
                found += self.offset
        return found


@dataclass(frozen=True, slots=True)
class Condition:
    """Values of a multiplexer with which a multiplexed signal is in the frame."""

    place: Place
    values: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class SignalDecoder:
    """A chosen signal.

    Attributes:
        channel: name of its channel.
        place: of its bits.
        conditions: all must hold where it is multiplexed.
        about: its definition, for people and for ``signals.json``.
    """

    channel: str
    place: Place
    conditions: tuple[Condition, ...]
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MessageDecoder:
    """A message with its chosen signals.

    Attributes:
        name: in the database.
        suffix: of its stream.
        frame_id: identifier, with the flag `EXTENDED`.
        period_s: cycle time by the database; None where it has none.
        signals: at least one.
    """

    name: str
    suffix: str
    frame_id: int
    period_s: float | None
    signals: tuple[SignalDecoder, ...]

    def decode(self, frames: Frames) -> tuple[npt.NDArray[np.bool_], dict[str, Floats], int]:
        """Decode frames of the message.

        Returns:
            which frames have at least one chosen signal, bool [n]; of those the channels, f8, NaN
            where a frame does not have the signal; and how many of all frames were too short.
        """
        count, width = frames.data.shape
        bits = frames.length.astype(np.int64) * 8
        short, some = np.zeros(count, bool), np.zeros(count, bool)
        columns: dict[str, Floats] = {}
        for signal in self.signals:
            fits = bits >= signal.place.end
            here = np.ones(count, bool)
            for condition in signal.conditions:
                place = condition.place
                reads = bits >= place.end
                short |= ~reads
                here &= reads
                if place.end <= 8 * width:
                    here &= np.isin(place.raw(frames.data), condition.values)
            short |= here & ~fits
            here &= fits
            if here.any():
                values = signal.place.values(signal.place.raw(frames.data))
                if not here.all():
                    values[~here] = np.nan
                some |= here
            else:
                values = np.full(count, np.nan)
            columns[signal.channel] = values
        if not some.all():
            columns = {name: values[some] for name, values in columns.items()}
        return some, columns, int(np.count_nonzero(short))


class SignalTable:
    """The chosen signals of a database.

    Args:
        path: of the database (.dbc; also .arxml, .kcd, .sym, which cantools reads).
        chosen: ``MESSAGE.SIGNAL``, ``MESSAGE.*``, a ``SIGNAL`` that one message has, or ``*``.

    Attributes:
        messages: with their chosen signals, in the database's order.
        sha256: digest of the database's file.

    Raises:
        SourceError: cantools is not installed, or the file cannot be read or parsed.
        FormatError: a name is not in the database or is ambiguous, or a signal cannot be decoded.
    """

    def __init__(self, path: Path, chosen: Sequence[str]) -> None:
        database, self.sha256 = load_database(path)
        messages = sorted(database.messages, key=lambda message: str(message.name))
        wanted = choose_signals(messages, chosen)
        suffixes = make_unique_names([str(message.name) for message in messages], ())
        found = [
            _message(message, suffix, wanted[id(message)])
            for message, suffix in zip(messages, suffixes, strict=True)
            if id(message) in wanted
        ]
        taken: dict[int, str] = {}
        for each in found:
            if (other := taken.setdefault(each.frame_id, each.name)) != each.name:
                number = each.frame_id & ID_MASK
                raise FormatError(
                    f"the messages {other!r} and {each.name!r} have one identifier {number:#x}; "
                    f"choose signals of one of them"
                )
        self.messages: tuple[MessageDecoder, ...] = tuple(found)
        order = sorted(range(len(found)), key=lambda k: found[k].frame_id)
        self._order = np.array(order, np.intp)
        self._ids = np.array([found[k].frame_id for k in order], np.uint32)

    def split(self, frames: Frames) -> list[tuple[MessageDecoder, Frames]]:
        """Return the frames of each message that has some; frames without data are left out."""
        if not len(frames) or not len(self._ids):
            return []
        at = np.minimum(np.searchsorted(self._ids, frames.id), len(self._ids) - 1)
        known = self._ids[at] == frames.id  # a flag for an error or a request is in no identifier
        split = []
        for number in np.unique(at[known]).tolist():
            chosen = np.flatnonzero(known & (at == number))
            split.append((self.messages[int(self._order[number])], frames.part(chosen)))
        return split


def _message(message: Any, suffix: str, signals: Sequence[Any]) -> MessageDecoder:
    named = make_unique_names(
        [str(each.name) for each in message.signals], (*TIME_CHANNELS, "signals")
    )
    channels = {id(each): name for each, name in zip(message.signals, named, strict=True)}
    by_name = {str(each.name): each for each in message.signals}
    decoders = []
    for signal in signals:
        try:
            conditions = _conditions(signal, by_name)
            place = Place.of(signal)
        except FormatError as error:
            raise FormatError(f"{message.name}.{signal.name}: {error}") from None
        about = _about(signal)
        decoders.append(SignalDecoder(channels[id(signal)], place, conditions, about))
    frame_id = int(message.frame_id) | (EXTENDED if message.is_extended_frame else 0)
    cycle_ms = message.cycle_time  # a database may declare it as a text
    period_s = cycle_ms / 1000 if isinstance(cycle_ms, int | float) and cycle_ms else None
    return MessageDecoder(str(message.name), suffix, frame_id, period_s, tuple(decoders))


def _conditions(signal: Any, by_name: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions of a multiplexed signal; its multiplexers may be multiplexed."""
    found: list[Condition] = []
    seen = {str(signal.name)}
    while signal.multiplexer_signal is not None:
        name = str(signal.multiplexer_signal)
        if name in seen or name not in by_name:
            raise FormatError(f"its multiplexer {name!r} is not defined")
        seen.add(name)
        multiplexer = by_name[name]
        place = Place.of(multiplexer)
        mask = (1 << place.bits) - 1
        ids = [number & mask for number in signal.multiplexer_ids or ()]
        found.append(Condition(place, np.array(sorted(ids), np.uint64)))
        signal = multiplexer
    return tuple(found)


def _about(signal: Any) -> dict[str, Any]:
    about = {
        "signal": str(signal.name),
        "unit": signal.unit or "",
        "start": signal.start,
        "length": signal.length,
        "byte_order": signal.byte_order,
        "signed": bool(signal.is_signed),
        "float": bool(signal.conversion.is_float),
        "scale": signal.conversion.scale,
        "offset": signal.conversion.offset,
        "minimum": signal.minimum,
        "maximum": signal.maximum,
        "comment": signal.comment or "",
    }
    if signal.conversion.choices:
        about["choices"] = {str(k): str(v) for k, v in sorted(signal.conversion.choices.items())}
    if signal.multiplexer_signal is not None:
        about["multiplexer"] = str(signal.multiplexer_signal)
        about["multiplexer_ids"] = list(signal.multiplexer_ids or ())
    return about


def format_signals(message: MessageDecoder) -> str:
    """Return the definitions of a message's chosen signals, for the file beside their channels."""
    number = message.frame_id & ~EXTENDED
    head = {"message": message.name, "id": number, "extended": bool(message.frame_id & EXTENDED)}
    signals = {signal.channel: dict(signal.about) for signal in message.signals}
    return json.dumps(head | {"signals": signals}, indent=1, ensure_ascii=False) + "\n"
