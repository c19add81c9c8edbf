"""YAML parser to plain values, with the line of every key.

The scalars are YAML 1.2's, because YAML 1.1 guesses types and loses values: only ``true`` and
``false`` are booleans (``on``, ``yes`` and ``no`` are texts), and dates, times, ``010``, ``1_000``
and ``.nan`` stay texts. Where a number is needed, such a text is a clear error; in free-form
metadata it stays as it was written. Anchors, aliases and merge keys (``<<``) work; tags other than
the plain types, duplicate keys and cycles are errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from recorder.common.errors import ConfigError
from recorder.common.secret_masking import (
    MASK,
    SECRET_KEYS,
    is_secret_key,
    mask_comment,
    mask_passwords,
    mask_value,
)

MAX_BYTES = 1 << 20
"""Largest file that is read; a config of many sensors has some kilobytes."""
MAX_DEPTH = 40
MAX_VALUES = 50_000
"""Bounds on nesting, and on values with aliases expanded: a few lines can expand to billions."""

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.BaseLoader):
    """PyYAML's node loader, with the scalar rules above and bounded depth."""

    _depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.get_mark()
            raise yaml.MarkedYAMLError(problem="is nested too deeply", problem_mark=mark)
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+|(?:0|[1-9][0-9]*)\.?)(?:[eE][-+]?[0-9]+)?",
        "-+.0123456789",
    ),
    ("merge", "<<", "<"),
):
    _Loader.add_implicit_resolver(
        _TAG + _name,
        re.compile(rf"(?:{_pattern})\Z"),
        ["" if c == "\0" else c for c in _first],
    )


@dataclass(frozen=True, slots=True)
class Document:
    """Top mapping of a YAML file as plain values.

    Attributes:
        file: its path, for messages.
        text: the whole text, as it was.
        values: mappings with text keys, lists, str, int (64 bits), float (finite), bool, None.
        lines: line of every key path (``sensors.camera.fps``, ``finalize[0]``), from 1.
        masked_text: the text with passwords masked: in addresses, and values of `SECRET_KEYS`.
        written: by key path, numbers in another form: (as Python prints them, as in the file).
    """

    file: Path
    text: str = field(repr=False)
    values: dict[str, Any] = field(repr=False)
    lines: dict[str, int] = field(repr=False)
    masked_text: str = field(repr=False)
    written: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)

    def find_line(self, key: str) -> int | None:
        """Return the line of a key path, or of the nearest mapping or list around it."""
        while key:
            if key in self.lines:
                return self.lines[key]
            key = re.sub(r"(?:^|\.)[^.\[]*$|\[[^\[]*$", "", key)
        return None

    def fail(self, key: str, message: str) -> ConfigError:
        """Make an error about a key, with numbers as they were typed and without passwords.

        A value in parentheses is left out if the whole value is a password.
        """
        if is_secret(key):
            message = re.sub(r" \(.*\)", "", message, flags=re.DOTALL)
        message = mask_passwords(message.replace(*self.written.get(key, ("", "")), 1))
        return ConfigError(message, file=self.file, line=self.find_line(key), key=key)


def read_yaml(path: Path) -> Document:
    """Read and parse a YAML file whose top is a mapping.

    Raises:
        ConfigError: the file cannot be read, is too large, is not UTF-8, not YAML, or has an
            unsupported construct; names file, line and, if there is one, the key path.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(error.strerror or str(error), file=path) from None
    except ValueError as error:  # a NUL in the path
        raise ConfigError(str(error), file=path) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES} bytes, so no config", file=path)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = raw[error.start]
        raise ConfigError(f"is not UTF-8 text: byte 0x{byte:02x}", file=path, line=line) from None
    return parse_yaml(text, path)


def parse_yaml(text: str, file: Path) -> Document:
    """Parse YAML text whose top is a mapping; see `read_yaml`."""
    root = _compose(text, file)
    if root is None:
        raise ConfigError("is empty", file=file)
    if not isinstance(root, MappingNode):
        line = root.start_mark.line + 1
        raise ConfigError("needs a mapping of keys to values at its top", file=file, line=line)
    builder = _Builder(file)
    values = builder.value(root, "")
    return Document(file, text, values, builder.lines, _mask(text, root), builder.written)


def shareable_text(text: str) -> str:
    """Mask passwords and likely secrets in a config's text, for archives and reports.

    Passwords in addresses are masked everywhere. Values under keys that are named like secrets are
    masked in ``session.metadata`` and ``sensors``, or in every line if the text is not YAML. A text
    without secrets is unchanged.
    """
    try:
        root = _compose(text, Path("config.yaml"))
    except ConfigError:
        return "".join(map(_shareable_line, text.splitlines(keepends=True)))
    if root is None:
        return mask_comment(text)
    return _mask(text, root, likely=True)


def _shareable_line(line: str) -> str:
    key, mark, _ = line.partition(":")
    if mark and is_secret_key(key):
        return f"{key}: {MASK}" + ("\n" if line.endswith("\n") else "")
    return mask_comment(line)


def _compose(text: str, file: Path) -> Node | None:
    try:
        loader = _Loader(text)
        node: Node | None = loader.get_single_node()
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise ConfigError(
            f"holds the control character U+{code:04X}", file=file, line=line
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "is not valid"
        if "mapping values are not allowed" in problem or problem.endswith("but got ':'"):
            problem += ' (a text that ends in a colon or holds ": " needs quotes: "sim:")'
        at = mark.line + 1 if mark else None
        raise ConfigError(f"bad YAML: {problem}", file=file, line=at) from None
    except (ValueError, OverflowError) as error:
        # PyYAML's scanner lets these out for escapes beyond Unicode and endless version numbers.
        raise ConfigError(f"bad YAML: {error}", file=file) from None
    return node


@dataclass
class _Builder:
    """Converter of nodes to plain values, which records lines and written numbers."""

    file: Path
    lines: dict[str, int] = field(default_factory=dict)
    written: dict[str, tuple[str, str]] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)
    _count: int = 0

    def value(self, node: Node, key: str) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._error(node, key, f"aliases expand to more than {MAX_VALUES} values")
        if isinstance(node, ScalarNode):
            return self._scalar(node, key)
        if id(node) in self._open:
            raise self._error(node, key, "an alias contains itself")
        self._open.add(id(node))
        try:
            if isinstance(node, SequenceNode):
                return self._sequence(node, key)
            return self._mapping(node, key)
        finally:
            self._open.discard(id(node))

    def _sequence(self, node: Node, key: str) -> list[Any]:
        self._check_tag(node, key, "seq")
        items = []
        for index, item in enumerate(node.value):
            path = f"{key}[{index}]"
            self.lines[path] = item.start_mark.line + 1
            items.append(self.value(item, path))
        return items

    def _mapping(self, node: Node, key: str) -> dict[str, Any]:
        self._check_tag(node, key, "map")
        result = {}
        for name, key_node, value_node in self._pairs(node, key):
            path = f"{key}.{name}" if key else name
            self.lines[path] = key_node.start_mark.line + 1
            result[name] = self.value(value_node, path)
        return result

    def _pairs(self, node: Node, key: str) -> Iterator[tuple[str, Node, Node]]:
        """Yield the mapping's own entries, then those of its merge keys that it lacks."""
        own: dict[str, tuple[Node, Node]] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                raise self._error(
                    key_node, key, "a key needs to be one word, not a list or mapping"
                )
            if key_node.tag == _TAG + "merge":
                many = isinstance(value_node, SequenceNode)
                merged += value_node.value if many else [value_node]
                continue
            if key_node.tag.removeprefix(_TAG) not in _SCALARS:
                raise self._error(key_node, key, f"the YAML tag {key_node.tag!r} is not taken here")
            name = self._text(key_node, key)
            if name in own:
                first = own[name][0].start_mark.line + 1
                path = f"{key}.{name}" if key else name
                raise self._error(key_node, path, f"duplicate key, first at line {first}")
            own[name] = (key_node, value_node)
        for base in merged:
            if not isinstance(base, MappingNode):
                raise self._error(base, key, "<< takes an alias of a mapping, or a list of such")
            if id(base) in self._open:
                raise self._error(base, key, "an alias contains itself")
            self._count += 1 + len(base.value)
            if self._count > MAX_VALUES:
                raise self._error(base, key, f"aliases expand to more than {MAX_VALUES} values")
            self._open.add(id(base))
            for name, key_node, value_node in self._pairs(base, key):
                own.setdefault(name, (key_node, value_node))
            self._open.discard(id(base))
        for name, (key_node, value_node) in own.items():
            yield name, key_node, value_node

    def _scalar(self, node: ScalarNode, key: str) -> Any:
        text = self._text(node, key)
        kind = node.tag.removeprefix(_TAG)
        make = _SCALARS.get(kind)
        if make is None:
            raise self._error(node, key, f"the YAML tag {node.tag!r} is not taken here")
        try:
            value = make(text)
            if kind in ("int", "float") and str(value) != text:
                self.written[key] = str(value), text
            return value
        except (ValueError, KeyError):
            shown = repr(text if len(text) <= 40 else text[:37] + "...")
            what = "this value" if is_secret(key) else shown
            raise self._error(node, key, f"{what} is {_NEEDED[kind]}") from None

    def _text(self, node: ScalarNode, key: str) -> str:
        text: str = node.value
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise self._error(node, key, "holds half of a surrogate pair, which is no character")
        return text

    def _check_tag(self, node: Node, key: str, kind: str) -> None:
        if node.tag not in (_TAG + kind, "!"):
            raise self._error(node, key, f"the YAML tag {node.tag!r} is not taken here")

    def _error(self, node: Node, key: str, message: str) -> ConfigError:
        return ConfigError(
            mask_passwords(message), file=self.file, line=node.start_mark.line + 1, key=key
        )


def _integer(text: str) -> int:
    body = text.lstrip("+-")
    base = {"0o": 8, "0x": 16}.get(body[:2], 10)
    if len(body) > 66:
        raise ValueError
    value = int(text, base)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError
    return value


def _number(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise ValueError
    return value


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "merge": str,
    "int": _integer,
    "float": _number,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "null": lambda _: None,
}
_NEEDED = {
    "int": "no whole number of 64 bits",
    "float": "no number, or too large a one",
    "bool": "neither true nor false",
}


def _mask(text: str, root: Node, *, likely: bool = False) -> str:
    """Mask passwords in a text: in values, however they are quoted, and in comments.

    Values are masked one by one, so that the rest of the YAML stays unchanged.

    Args:
        text, root: the file.
        likely: see `_find_secrets`.
    """
    spans: dict[tuple[int, int], str] = {}
    nodes, secret = _find_secrets(root, likely)
    for node in nodes:
        start, end = node.start_mark.index, node.end_mark.index
        written, masked = text[start:end], mask_value(node.value)
        if node in secret:
            written = _spell_as_json(written, MASK)
        elif masked != node.value:
            written = _spell(written, node.value, masked)
        elif node.style in ("|", ">"):  # a comment may be in its first line
            written = mask_passwords(written)
        spans[start, end] = written
    parts, at = [], 0
    for (start, end), written in sorted(spans.items()):
        parts += [mask_comment(text[at:start]), written]
        at = end
    return "".join([*parts, mask_comment(text[at:])])


def _find_secrets(root: Node, likely: bool) -> tuple[set[ScalarNode], set[Node]]:
    """Return all scalars, and those that are secrets.

    Args:
        root: the file.
        likely: include those under keys that are named like secrets, in ``session.metadata`` and
            ``sensors``.
    """
    scalars: set[ScalarNode] = set()
    secret: set[Node] = set()
    stack: list[tuple[Node, str, bool]] = [(root, "" if likely else "other", False)]
    seen = set()  # a node may be reached by several aliases
    while stack:
        node, place, hidden = state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        if isinstance(node, ScalarNode):
            scalars.add(node)
            if hidden and node.value:
                secret.add(node)
        elif isinstance(node, SequenceNode):
            stack += [(item, place, hidden) for item in node.value]
        else:
            for key, value in node.value:
                name = key.value if isinstance(key, ScalarNode) else ""
                if name in SECRET_KEYS and value.tag == _TAG + "str":
                    secret.add(value)
                named = place == "searched" and is_secret_key(name)
                below = "searched" if place == "searched" else _PLACES.get((place, name))
                stack += [(key, "other", False), (value, below or "other", hidden or named)]
    return scalars, secret


_PLACES = {
    ("", "session"): "session",
    ("session", "metadata"): "searched",
    ("", "sensors"): "searched",
}


def is_secret(key: str) -> bool:
    """Return whether the whole value of a key path is a password."""
    return key.rpartition(".")[2] in SECRET_KEYS


def _spell(written: str, value: str, masked: str) -> str:
    """Return the text to show instead of `written`, whose value is masked."""
    if value in written:
        return written.replace(value, masked)
    return _spell_as_json(written, masked)


def _spell_as_json(written: str, masked: str) -> str:
    """Quote the masked value after the anchor or tag of `written`."""
    before = re.match(r"(?:[&!]\S*\s+)*", written)
    after = "\n" if written.endswith("\n") else ""
    return (before[0] if before else "") + json.dumps(masked, ensure_ascii=False) + after
