"""Layouts as Python classes, declared like the format's own examples.

>>> class Mode(IntEnum):
...     MANUAL, AUTO = 0, 1
>>> class CameraData(DataLayout):
...     exposure_s = Value(float64, "exposure_time", unit="s")
...     mode = Enum(Mode, uint8, "mode")
...     roi = Array(uint32, "roi", 4)
...     gains = Vector(float32, "gains")
>>> data = CameraData(exposure_s=0.01, mode=Mode.AUTO, roi=[0, 0, 640, 480])
>>> payload = data.encode()
>>> CameraData.decode(payload).exposure_s
0.01

Use `map` to read records of another version of the class. It matches pieces by kind, label and
element type. A piece that the file lacks has its default, and its name is in `missing`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from recorder.common.errors import FormatError
from recorder.formats.vrs.elements import ElementType, string
from recorder.formats.vrs.layout_spec import LayoutSpec
from recorder.formats.vrs.pieces import ARRAY, STRING_MAP, TEXT, VALUE, VECTOR, Piece


class _Member:
    """Member of a `DataLayout`; an instance holds the value under the member's name."""

    name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value

    def make_value(self) -> Any:
        """Return the member's value in a new instance."""
        raise NotImplementedError

    def leaves(self, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        """Yield the member's pieces with their places."""
        raise NotImplementedError


class _Leaf:
    """One piece and its path: names of attributes, or positions in a tuple of structs."""

    def __init__(self, piece: Piece, path: tuple[Any, ...], kind: type[enum.Enum] | None) -> None:
        self.piece = piece
        self.path = path
        self.enum = kind
        self.name = ".".join(str(step) for step in path)

    def get(self, layout: DataLayout) -> Any:
        value: Any = layout
        for step in self.path:
            value = value[step] if isinstance(step, int) else value.__dict__[step]
        if self.enum is not None and isinstance(value, enum.Enum):
            return value.value
        return value

    def set(self, layout: DataLayout, value: Any) -> None:
        target: Any = layout
        for step in self.path[:-1]:
            target = target[step] if isinstance(step, int) else target.__dict__[step]
        target.__dict__[self.path[-1]] = (
            value if self.enum is None else find_member(self.enum, value)
        )


def find_member(kind: type[enum.Enum], value: Any) -> Any:
    """Return the member with that value; the plain value if unknown, as in a newer file."""
    try:
        return kind(value)
    except ValueError:
        return value


class _PieceMember(_Member):
    def __init__(
        self,
        kind: str,
        element: ElementType,
        label: str,
        *,
        count: int = 0,
        enum_type: type[enum.Enum] | None = None,
        default: Any = None,
        required: bool = False,
        properties: Mapping[str, Any] | None = None,
        **tags: str,
    ) -> None:
        if isinstance(default, enum.Enum):
            default = default.value
        self._enum = enum_type
        about = tags, properties or {}, required
        self.piece = Piece(kind, element, label, count, default, *about)
        value = self.piece.make_default()  # raises for a default that does not fit
        self._first = value if enum_type is None else find_member(enum_type, value)

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.piece = replace(self.piece, label=self.piece.label or name)

    def make_value(self) -> Any:
        first = self._first
        return first.copy() if isinstance(first, (np.ndarray, dict, list)) else first

    def leaves(self, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        piece = replace(self.piece, label=prefix + self.piece.label)
        yield _Leaf(piece, (*path, self.name), self._enum)


def Value(element: ElementType, label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare one value.

    `about`: default, required, properties, and tags such as unit and description. Without a label,
    the attribute's name is the label; this holds for all kinds.
    """
    return _PieceMember(VALUE, element, label, **about)


def Enum(kind: type[enum.Enum], element: ElementType, label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare one value of an enumeration with integer values; files store its number."""
    return _PieceMember(VALUE, element, label, enum_type=kind, **about)


def Array(element: ElementType, label: str, count: int, **about: Any) -> Any:  # noqa: N802
    """Declare `count` values, an array [count, *shape of the element]."""
    return _PieceMember(ARRAY, element, label, count=count, **about)


def Vector(element: ElementType, label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare any number of values, an array [k, *shape of the element]; of `string`: a list."""
    return _PieceMember(VECTOR, element, label, **about)


def String(label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare a text."""
    return _PieceMember(TEXT, string, label, **about)


def StringMap(element: ElementType, label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare values of one type under texts, a dict."""
    return _PieceMember(STRING_MAP, element, label, **about)


class Struct(_Member):
    """Pieces of another layout inside of this one, under ``label/``.

    With a count, that many layouts are under ``label/0/``, ``label/1/``, ..., and the value is a
    tuple of instances.
    """

    def __init__(self, layout: type[DataLayout], label: str = "", count: int | None = None) -> None:
        self._layout = layout
        self._label = label
        self._count = count

    def make_value(self) -> Any:
        if self._count is None:
            return self._layout()
        return tuple(self._layout() for _ in range(self._count))

    def leaves(self, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        prefix = f"{prefix}{self._label or self.name}/"
        path = (*path, self.name)
        if self._count is None:
            yield from self._layout._walk(prefix, path)
        else:
            for at in range(self._count):
                yield from self._layout._walk(f"{prefix}{at}/", (*path, at))


class Optional(_Member):
    """Pieces that either all records of a file have, or none.

    Without them the value is None; `DataLayout.having` makes the class with them. When a file is
    read, the value is an instance if the file has at least one of the pieces. Optional pieces must
    be direct members of the layout that is written and read, not of a struct in it.
    """

    def __init__(self, layout: type[DataLayout], *, present: bool = False) -> None:
        self.layout = layout
        self.present = present

    def make_value(self) -> Any:
        return self.layout() if self.present else None

    def leaves(self, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        if self.present:
            yield from self.layout._walk(prefix, (*path, self.name))


class DataLayout:
    """Base of all layouts; see the module.

    Attributes:
        spec: the pieces, as a file declares them.
        missing: names of attributes that the file lacks (``left.focal_length`` inside of structs);
            empty for instances that were not read from a file.
    """

    spec: ClassVar[LayoutSpec] = LayoutSpec(())
    _members: ClassVar[dict[str, _Member]] = {}
    _leaves: ClassVar[tuple[_Leaf, ...]] = ()
    _flat: ClassVar[tuple[str, ...] | None] = ()
    _variants: ClassVar[dict[tuple[str, ...], Any]] = {}
    missing: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls).keys() & vars(DataLayout).keys():
            if isinstance(vars(cls)[name], _Member):
                raise FormatError(f"{cls.__name__}: {name!r} is a name of DataLayout's own")
        members = dict(cls._members)
        members.update({k: v for k, v in vars(cls).items() if isinstance(v, _Member)})
        cls._members = members
        leaves = tuple(cls._walk("", ()))
        try:
            cls.spec = LayoutSpec(leaf.piece for leaf in leaves)
        except FormatError as error:
            raise FormatError(f"{cls.__name__}: {error}") from None
        cls._leaves = tuple(sorted(leaves, key=lambda leaf: not leaf.piece.fixed))
        flat = all(len(leaf.path) == 1 and leaf.enum is None for leaf in leaves)
        cls._flat = tuple(leaf.path[0] for leaf in cls._leaves) if flat else None

    @classmethod
    def _walk(cls, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        for member in cls._members.values():
            yield from member.leaves(prefix, path)

    @classmethod
    def having(cls, *names: str) -> type[Self]:
        """Make the same class with these optional pieces."""
        variants = cls.__dict__.get("_variants")
        if variants is None:
            variants = cls._variants = {}
        if names in variants:
            made: type[Self] = variants[names]
            return made
        present: dict[str, Any] = {}
        for name in names:
            member = cls._members.get(name)
            if not isinstance(member, Optional):
                raise FormatError(f"{cls.__name__} has no optional pieces {name!r}")
            present[name] = Optional(member.layout, present=True)
        made = variants[names] = type(cls.__name__, (cls,), present)
        return made

    def __init__(self, **values: Any) -> None:
        """Set pieces by their names; others have their default."""
        own = self.__dict__
        for name, member in self._members.items():
            own[name] = values.pop(name) if name in values else member.make_value()
        if values:
            raise FormatError(f"{type(self).__name__} has no piece {sorted(values)[0]!r}")

    def __repr__(self) -> str:
        values = (f"{name}={self.__dict__[name]!r}" for name in self._members)
        return f"{type(self).__name__}({', '.join(values)})"

    def encode(self) -> bytes:
        """Encode to the bytes in a record; FormatError names a piece whose value does not fit."""
        try:
            if self._flat is not None:
                own = self.__dict__
                return self.spec.encode([own[name] for name in self._flat])
            return self.spec.encode([leaf.get(self) for leaf in self._leaves])
        except FormatError as error:
            raise FormatError(f"{type(self).__name__}: {error}") from None

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Decode bytes of exactly this layout; for files' records see `map`."""
        values, _ = cls.spec.decode(data)
        return cls.map(cls.spec, values)

    @classmethod
    def map(cls, spec: LayoutSpec, values: Sequence[Any]) -> Self:
        """Map a file's layout and values by (kind, label, element type), in any order.

        Raises:
            FormatError: the file lacks a piece that is required here.
        """
        reader = cls
        optional = {k: m for k, m in cls._members.items() if isinstance(m, Optional)}
        there = [
            name
            for name, member in optional.items()
            if not member.present
            and any(spec.place(leaf.piece) is not None for leaf in member.layout._leaves)
        ]
        if there:
            reader = cls.having(*there)
        layout = reader()
        missing: set[str] = set()
        for leaf in reader._leaves:
            place = spec.place(leaf.piece)
            if place is not None:
                leaf.set(layout, values[place])
            elif leaf.piece.required:
                raise FormatError(
                    f"{cls.__name__} requires {leaf.piece.type_name} {leaf.piece.label!r}, "
                    "which the file has not"
                )
            else:
                missing.add(leaf.name)
        layout.missing = frozenset(missing)
        return layout
