"""Language for conditions over recorded values, such as ``abs(imu.acc[0]) > 4``.

The language has numbers, ``True`` and ``False``, the values of streams, ``+ - * /``, comparisons,
``and``, ``or``, ``not``, and ``abs``, ``min``, ``max``: nothing that could loop or allocate.
Python's own parser reads an expression; closures over a list of values compute it.

==========================  ======================================================================
value                       is
==========================  ======================================================================
``imu.acc[0]``              one number of the newest sample of a small channel
``imu.rate``                samples in the last second; missing in a recording's first second
``imu.lost``                samples of the session that were counted as lost so far
``imu.uncounted``           losses of the session of an unknown number of samples so far
``camera.state.exposure``   the latest state with that key: a number, True or False
``camera.events.fault``     events of that type or cause so far; ``session.events``: of no stream
==========================  ======================================================================

A value that is not known yet, or is not a number, is *missing*. The result of an operation with a
missing value is missing, and so is a division by zero. ``and`` and ``or`` have a value if one side
decides them. A missing condition is not met. All numbers are floats. Every comparison with NaN
except ``!=`` is false.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from recorder.common.errors import UsageError

MOST_LENGTH: Final = 500
"""Most characters of an expression."""
_MOST_NODES: Final = 200
_MOST_DEPTH: Final = 30
SESSION: Final = "session"
"""Name in place of a stream, for events that are about no stream."""
COUNTERS: Final = ("rate", "lost", "uncounted")

Value = float | bool | None
"""Value of a reference or an expression; None: missing."""
_Compute = Callable[[Sequence[Value]], Value]


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference to a value of a stream.

    Attributes:
        stream: its name; `SESSION` for events of no stream.
        kind: ``channel``, ``state``, ``events``, or one of `COUNTERS`.
        path: name of the channel or the event, or the keys of a state.
        index: of the number in a channel's sample, one for each axis.
    """

    stream: str
    kind: str
    path: tuple[str, ...] = ()
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [self.stream, *(() if self.kind == "channel" else (self.kind,)), *self.path]
        text = ".".join(parts)
        return f"{text}[{', '.join(map(str, self.index))}]" if self.index else text


class ExpressionError(UsageError):
    """Text that is not an expression; the message names the column.

    Attributes:
        column: of the mistake, from 1.
    """

    def __init__(self, text: str, column: int) -> None:
        super().__init__(f"column {column}: {text}")
        self.column = column


@dataclass(frozen=True, slots=True)
class Expression:
    """Compiled expression.

    Attributes:
        text: the text as it was written.
        references: the values that it needs, each once.
    """

    text: str
    references: tuple[Reference, ...]
    _compute: _Compute

    def __call__(self, values: Sequence[Value]) -> Value:
        """Compute the result for a list of values; see `compile_expression`."""
        return self._compute(values)

    def is_met(self, values: Sequence[Value]) -> bool:
        """Return whether the condition holds; False if it is missing or NaN."""
        return _is_true(self._compute(values)) is True


def compile_expression(text: str, slots: dict[Reference, int] | None = None) -> Expression:
    """Compile an expression.

    Args:
        text: the expression.
        slots: index of each value in the list that the expression is called with. New references
            are added, so that several expressions share one list. None: the expression has a list
            of its own.

    Raises:
        ExpressionError: the text is too long, nested too deeply, or not part of the language.
    """
    if len(text) > MOST_LENGTH:
        raise ExpressionError(f"longer than {MOST_LENGTH} characters", MOST_LENGTH + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text.strip() or "()", mode="eval")
    except SyntaxError as error:
        raise ExpressionError(f"no expression: {error.msg}", max(1, error.offset or 1)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"no expression: {error}", 1) from None
    compiler = _Compiler(len(text) - len(text.lstrip()), {} if slots is None else slots)
    compute = compiler.compile(tree.body, 0)
    return Expression(text, tuple(compiler.found), compute)


class _Compiler:
    """Compiler of nodes to closures; `found` collects the references."""

    def __init__(self, indent: int, slots: dict[Reference, int]) -> None:
        self.found: dict[Reference, None] = {}
        self._slots = slots
        self._indent = indent
        self._nodes = 0

    def compile(self, node: ast.expr, depth: int) -> _Compute:
        self._nodes += 1
        if depth > _MOST_DEPTH:
            raise self._error(node, f"nested deeper than {_MOST_DEPTH}")
        if self._nodes > _MOST_NODES:
            raise self._error(node, f"more than {_MOST_NODES} parts")
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Attribute() | ast.Subscript() | ast.Name():
                return self._reference(node)
            case ast.UnaryOp():
                return self._unary(node, depth)
            case ast.BinOp():
                return self._binary(node, depth)
            case ast.BoolOp():
                parts = [self.compile(value, depth + 1) for value in node.values]
                return _combine(parts, isinstance(node.op, ast.Or))
            case ast.Compare():
                return self._compare(node, depth)
            case ast.Call():
                return self._call(node, depth)
        raise self._error(node, f"{_WORDS.get(type(node), 'this')} is not part of the language")

    def _error(self, node: ast.expr, text: str) -> ExpressionError:
        return ExpressionError(text, node.col_offset + self._indent + 1)

    def _constant(self, node: ast.Constant) -> _Compute:
        value = node.value
        if isinstance(value, bool):
            return lambda _: value
        if not isinstance(value, int | float):
            raise self._error(node, f"{str(value)!r:.40} is no number")
        try:
            number = float(value)
        except OverflowError:
            raise self._error(node, "the number is too large") from None
        return lambda _: number

    def _unary(self, node: ast.UnaryOp, depth: int) -> _Compute:
        operand = self.compile(node.operand, depth + 1)
        match node.op:
            case ast.Not():
                return _negate(operand)
            case ast.USub():
                return _apply(operator.neg, operand)
            case ast.UAdd():
                return _apply(operator.pos, operand)
        raise self._error(node, "~ is not part of the language")

    def _binary(self, node: ast.BinOp, depth: int) -> _Compute:
        function = _BINARY.get(type(node.op))
        if function is None:
            raise self._error(node, "of operators there are only + - * /")
        sides = (self.compile(node.left, depth + 1), self.compile(node.right, depth + 1))
        return _apply(function, *sides)

    def _compare(self, node: ast.Compare, depth: int) -> _Compute:
        operands = [self.compile(side, depth + 1) for side in (node.left, *node.comparators)]
        steps = []
        for at, kind in enumerate(node.ops):
            function = _COMPARISONS.get(type(kind))
            if function is None:
                raise self._error(node, "of comparisons there are only < <= > >= == !=")
            steps.append(_apply(function, operands[at], operands[at + 1]))
        return steps[0] if len(steps) == 1 else _combine(steps, False)

    def _call(self, node: ast.Call, depth: int) -> _Compute:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in ("abs", "min", "max"):
            raise self._error(node, "of functions there are only abs, min, max")
        if node.keywords or any(isinstance(value, ast.Starred) for value in node.args):
            raise self._error(node, f"{name} takes values, separated by commas")
        values = [self.compile(value, depth + 1) for value in node.args]
        if name == "abs":
            if len(values) != 1:
                raise self._error(node, "abs takes one value")
            return _apply(operator.abs, values[0])
        if len(values) < 2:
            raise self._error(node, f"{name} takes at least two values")
        return _apply(_least if name == "min" else _most, *values)

    def _reference(self, node: ast.expr) -> _Compute:
        index: tuple[int, ...] = ()
        inner = node
        if isinstance(node, ast.Subscript):
            index, inner = self._index(node), node.value
        names: list[str] = []
        while isinstance(inner, ast.Attribute):
            names.insert(0, inner.attr)
            inner = inner.value
            if len(names) > _MOST_DEPTH:
                raise self._error(node, f"nested deeper than {_MOST_DEPTH}")
        if not isinstance(inner, ast.Name):
            raise self._error(node, "an index or a point needs a stream's name before it")
        reference = self._make_reference(node, inner.id, names, index)
        self.found[reference] = None
        slot = self._slots.setdefault(reference, len(self._slots))
        return lambda values: values[slot]

    def _make_reference(
        self, node: ast.expr, stream: str, names: Sequence[str], index: tuple[int, ...]
    ) -> Reference:
        match names:
            case []:
                raise self._error(node, f"{stream!r}: needs a value of it, such as {stream}.rate")
            case ["state", _, *_]:
                found = Reference(stream, "state", tuple(names[1:]), index)
            case ["events", _]:
                found = Reference(stream, "events", (names[1],), index)
            case [("rate" | "lost" | "uncounted") as kind]:
                found = Reference(stream, kind, (), index)
            case [channel] if channel not in ("state", "events"):
                return Reference(stream, "channel", (channel,), index)
            case _:
                raise self._error(
                    node, f"{stream}.{'.'.join(names)}: needs .CHANNEL, .state.KEY, .events.NAME"
                )
        if index:
            raise self._error(node, f"{found.stream}.{found.kind}: is one value, without an index")
        return found

    def _index(self, node: ast.Subscript) -> tuple[int, ...]:
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        index = []
        for item in items:
            value = item.value if isinstance(item, ast.Constant) else None
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
                raise self._error(item, "an index needs whole numbers from 0")
            index.append(value)
        if not index:
            raise self._error(node, "an index needs whole numbers from 0")
        return tuple(index)


_WORDS: Mapping[type[ast.expr], str] = {
    ast.IfExp: "if",
    ast.Lambda: "lambda",
    ast.List: "a list",
    ast.Dict: "a mapping",
    ast.Set: "a set",
    ast.Tuple: "a tuple",
    ast.JoinedStr: "a text",
    ast.NamedExpr: ":=",
    ast.ListComp: "a loop",
    ast.GeneratorExp: "a loop",
    ast.Await: "await",
}


def _divide(left: float, right: float) -> Value:
    return None if right == 0 else left / right


def _least(*values: float) -> Value:
    return math.nan if any(map(math.isnan, values)) else min(values)


def _most(*values: float) -> Value:
    return math.nan if any(map(math.isnan, values)) else max(values)


_BINARY: Mapping[type[ast.operator], Callable[..., Value]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[..., Value]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _apply(function: Callable[..., Value], *operands: _Compute) -> _Compute:
    """Make a function of numbers; its result is missing if an operand is missing."""
    if len(operands) == 1:
        (only,) = operands

        def one(values: Sequence[Value]) -> Value:
            value = only(values)
            return None if value is None else function(float(value))

        return one
    if len(operands) == 2:
        first, second = operands

        def two(values: Sequence[Value]) -> Value:
            left, right = first(values), second(values)
            return None if left is None or right is None else function(float(left), float(right))

        return two

    def many(values: Sequence[Value]) -> Value:
        found = [operand(values) for operand in operands]
        known = [float(value) for value in found if value is not None]
        return function(*known) if len(known) == len(found) else None

    return many


def _is_true(value: Value) -> bool | None:
    """Convert a value to a condition; return None for missing values and NaN."""
    if value is None or value != value:  # NaN
        return None
    return bool(value)


def _negate(operand: _Compute) -> _Compute:
    def negated(values: Sequence[Value]) -> Value:
        truth = _is_true(operand(values))
        return None if truth is None else not truth

    return negated


def _combine(parts: Sequence[_Compute], decisive: bool) -> _Compute:
    """Make ``and`` (False is decisive) or ``or`` (True is): the first decisive part decides."""

    def decide(values: Sequence[Value]) -> Value:
        truth: bool | None = not decisive
        for part in parts:
            found = _is_true(part(values))
            if found is decisive:
                return decisive
            truth = None if found is None else truth
        return truth

    return decide
