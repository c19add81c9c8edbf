"""Single-line defects of a Python module: where they can be planted, and what is written there.

``find_defects(path, source)`` lists them.  Left alone are docstrings and every other text, type
annotations, messages (the arguments of ``raise`` and of logging calls, help texts), ``__repr__``
and ``__str__``, and numbers that are only tuned (``_TIMEOUT_S = 5.0``, ``timeout=10``; not
``timeout=0``, which does not wait).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

_COMPARISONS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "is not": "is", "is": "is not", "not in": "in", "in": "not in",
}  # fmt: skip
_ARITHMETIC = {
    "+": "-", "-": "+", "*": "/", "//": "*", "/": "*", "%": "*", "**": "*",
    "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|", "@": "+",
}  # fmt: skip
_BOOLEAN = {"and": "or", "or": "and"}
_TWINS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "sin": "cos", "cos": "sin",
    "floor": "ceil", "ceil": "floor", "minimum": "maximum", "maximum": "minimum",
    "argmin": "argmax", "argmax": "argmin", "startswith": "endswith", "endswith": "startswith",
    "find": "rfind", "rfind": "find", "append": "extend", "popleft": "pop", "hstack": "vstack",
}  # fmt: skip
_UNWRAPPED = {"abs", "sorted", "reversed", "bool", "int", "transpose", "invert", "inv", "copy"}
_ORDERLESS = {
    "min", "max", "minimum", "maximum", "hypot", "isinstance", "cast", "TypeVar", "suppress",
}  # fmt: skip
_LOGGING = {"say", "log", "_log", "_say", "debug", "info", "warning", "error", "exception"}
_MESSAGES = {"help", "description", "epilog", "metavar", "prog", "usage"}
_UNTESTED = {"strict", "encoding", "repr", "slots", "frozen", "name", "daemon"}  # as keywords
_TUNED = re.compile(r"_?[A-Z0-9_]+_(S|MS|BYTES|MB|TIMEOUT|INTERVAL|SIZE)")
_TIMEOUT = re.compile(r"(.*_)?timeout(_s)?")  # as keywords
_OPERATOR = re.compile(
    r"not\s+in\b|is\s+not\b|<<|>>|<=|>=|==|!=|\*\*|//|\b(?:in|is|and|or)\b|[-+*/%<>&|^@]"
)
_HIDDEN = {"__repr__", "__str__"}
_LARGE = 64  # an integer beyond it is a size or a unit, where one more makes no difference


@dataclass(frozen=True, slots=True)
class Defect:
    """One replacement of the bytes ``begin`` to ``end`` of a file, all on one line."""

    path: str
    line: int
    kind: str
    begin: int
    end: int
    text: str
    probe: tuple[int, int | None]
    """What must be evaluated for the defect to matter: an expression's bytes, or a statement's
    begin and None."""

    @property
    def key(self) -> str:
        """Its name; another one where the file changed before it."""
        return f"{self.path}:{self.line}:{self.begin}-{self.end}:{self.text}"

    def applied(self, source: bytes) -> bytes:
        """The file with the defect in it."""
        return source[: self.begin] + self.text.encode() + source[self.end :]

    def lines(self, source: bytes) -> tuple[str, str]:
        """The line as it is, and as the defect makes it; both without indentation."""
        before = source.splitlines()[self.line - 1].decode()
        after = self.applied(source).splitlines()[self.line - 1].decode()
        return before.strip(), after.strip()

    def above(self, source: bytes) -> str:
        """The line before, without indentation; "" at the beginning."""
        return source.splitlines()[self.line - 2].decode().strip() if self.line > 1 else ""


def find_defects(path: str, source: bytes) -> list[Defect]:
    """All defects that can be planted in a module, in the order of the file."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda d: (d.begin, d.end, d.text))


def changes_program(defect: Defect, source: bytes) -> bool:
    """Whether a module with the defect compiles, and to another program."""
    try:
        mutant = ast.parse(defect.applied(source))
        compile(mutant, defect.path, "exec")
    except (SyntaxError, ValueError):
        return False
    return ast.dump(mutant) != ast.dump(ast.parse(source))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Defect] = []
        self._path, self._source = path, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._assigned: set[str] = set()

    # what is left alone

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts, whose places Python 3.11 does not know either."""

    def visit_arguments(self, node: ast.arguments) -> None:
        """Defaults, without the annotations."""
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None:
                self.visit(default)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A function, unless it only shows something."""
        if node.name not in _HIDDEN:
            outer, self._assigned = self._assigned, set()
            self._visit_all(node.args, *node.decorator_list, *node.body)
            self._assigned = outer

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """A class, without what its instances only refuse (``frozen=True``)."""
        stated = [k.value for k in node.keywords if k.arg not in _UNTESTED]
        self._visit_all(*node.decorator_list, *node.bases, *stated, *node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The value alone."""
        if node.value is not None and not self._is_tuned(node.target):
            self.visit(node.value)

    def visit_Match(self, node: ast.Match) -> None:
        """A match statement without its patterns."""
        self.visit(node.subject)
        for case in node.cases:
            self._visit_all(*([case.guard] if case.guard else []), *case.body)

    def visit_Raise(self, node: ast.Raise) -> None:
        """An error is raised or not; its text is its own."""
        self._drop(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """What is asserted cannot happen."""

    def visit_If(self, node: ast.If) -> None:
        """A condition, unless it asks for who imports or runs the module."""
        asked = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
        if asked & {"TYPE_CHECKING", "__name__"}:
            return
        self._negate(node.test)
        self.generic_visit(node)

    # what is broken

    def visit_While(self, node: ast.While) -> None:
        """A loop's condition."""
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
            self.visit(node.test)
        self._visit_all(*node.body, *node.orelse)

    def visit_With(self, node: ast.With) -> None:
        """A lock that nobody takes."""
        for item in node.items:
            held = item.context_expr
            name = getattr(held, "id", getattr(held, "attr", ""))
            if name.endswith("lock"):
                nothing = '__import__("contextlib").nullcontext()'
                self._add("lock", held, *self._span(held), nothing, held)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """A choice."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """A filter."""
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Each comparison of a chain."""
        sides = [node.left, *node.comparators]
        for left, right in pairwise(sides):
            self._swap_operator("comparison", left, right, _COMPARISONS, node)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Arithmetic; not where texts are joined or formatted."""
        if not (_is_text(node.left) or _is_text(node.right) or _names_types(node)):
            self._swap_operator("arithmetic", node.left, node.right, _ARITHMETIC, node)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """And for or, at each place."""
        for left, right in pairwise(node.values):
            self._swap_operator("boolean", left, right, _BOOLEAN, node)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """A sign or a ``not`` that is not there."""
        if isinstance(node.op, (ast.USub, ast.Not, ast.Invert)):
            begin, inner = self._span(node)[0], self._span(node.operand)[0]
            kind = "sign" if isinstance(node.op, ast.USub) else "not"
            self._add(kind, node, begin, inner, "", node)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Numbers off by one, or by a factor of two; True for False."""
        value, text = node.value, None
        if isinstance(value, bool):
            text = str(not value)
        elif isinstance(value, int):
            text = str(value + 1) if abs(value) <= _LARGE else str(value * 2)
        elif isinstance(value, float):
            text = repr(value * 2 if value else 1.0)
        if text is not None:
            self._add("constant", node, *self._span(node), text, node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """An assignment that is not made, where the program goes on without it."""
        names = {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        first = node.targets[0]
        if isinstance(first, (ast.Attribute, ast.Subscript)) or names & self._assigned:
            self._drop(node)
        if not self._is_tuned(first):
            self._visit_all(*node.targets, node.value)
        self._assigned |= names

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """A sum that is not made, or the wrong way."""
        self._drop(node)
        if not _is_text(node.value):
            self._swap_operator("arithmetic", node.target, node.value, _ARITHMETIC, node)
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call that is not made; not where it only logs."""
        if isinstance(node.value, ast.Call) and not _is_logging(node.value):
            self._drop(node)
            self.visit(node.value)
        elif not isinstance(node.value, (ast.Constant, ast.Call)):
            self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        """None for a value."""
        if node.value is not None:
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                self._add("return", node, *self._span(node), "return None", node)
            self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        """A turn that goes on."""
        self._drop(node)

    def visit_Break(self, node: ast.Break) -> None:
        """A loop that goes on."""
        self._drop(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        """Something that stays."""
        self._drop(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """A matrix that is not transposed."""
        if node.attr == "T":
            self._add("transpose", node, self._span(node.value)[1], self._span(node)[1], "", node)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        """Arguments swapped or left out, a function's opposite, or its argument as it is."""
        name = _called(node)
        if name in _LOGGING or name == "dataclass":
            return
        end = self._span(node.func)[1]
        if name in _TWINS:
            self._add("twin", node, end - len(name), end, _TWINS[name], node)
        if name in _UNWRAPPED and len(node.args) == 1 and not node.keywords:
            self._add("unwrapped", node, self._span(node.func)[0], end, "", node)
        for left, right in pairwise(node.args):
            (a, b), (c, d) = self._span(left), self._span(right)
            one, two = self._source[a:b], self._source[c:d]
            plain = not isinstance(left, ast.Starred) and not isinstance(right, ast.Starred)
            if plain and one != two and name not in _ORDERLESS:
                swapped = two + self._source[b:c] + one
                self._add("arguments", node, a, d, swapped.decode(), node)
        for keyword in node.keywords:
            self._leave_out(node, keyword)
        if name == "compile":
            self._weaken_patterns(node)
        skipped = 1 if name in {"cast", "TypeVar", "NewType"} else 0
        self._visit_all(node.func, *node.args[skipped:])
        ignored = _MESSAGES | _UNTESTED
        self._visit_all(
            *(k.value for k in node.keywords if k.arg not in ignored and not _is_timeout(k))
        )

    # how it is written

    def _visit_all(self, *nodes: ast.AST) -> None:
        for node in nodes:
            self.visit(node)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, (ast.expr, ast.stmt, ast.keyword))
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _add(
        self, kind: str, node: ast.AST, begin: int, end: int, text: str, probe: ast.AST
    ) -> None:
        if b"\n" in self._source[begin:end] or "\n" in text:
            return
        at = self._span(probe)
        statement = isinstance(probe, ast.stmt)
        line = self._source.count(b"\n", 0, begin) + 1
        where = (at[0], None) if statement else at
        self.found.append(Defect(self._path, line, kind, begin, end, text, where))

    def _drop(self, node: ast.stmt) -> None:
        self._add("dropped", node, *self._span(node), "pass", node)

    def _negate(self, test: ast.expr) -> None:
        begin, end = self._span(test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return  # visit_UnaryOp removes it
        text = f"not ({self._source[begin:end].decode()})"
        self._add("condition", test, begin, end, text, test)

    def _swap_operator(
        self, kind: str, left: ast.expr, right: ast.expr, table: dict[str, str], probe: ast.AST
    ) -> None:
        begin, end = self._span(left)[1], self._span(right)[0]
        between = self._source[begin:end].decode(errors="replace")
        match = _OPERATOR.search(re.sub(r"#.*", lambda m: " " * len(m.group()), between))
        if match is None or not between.isascii():
            return
        other = table.get(re.sub(r"\s+", " ", match.group()))
        if other is not None:
            at = begin + match.start()
            self._add(kind, probe, at, at + len(match.group()), other, probe)

    def _leave_out(self, call: ast.Call, keyword: ast.keyword) -> None:
        if keyword.arg is None or keyword.arg in _MESSAGES | _UNTESTED:
            return
        begin, end = self._span(keyword)
        before = re.search(rb",\s*$", self._source[:begin])
        if before is not None and b"\n" not in before.group():
            self._add("keyword", call, before.start(), end, "", call)

    def _weaken_patterns(self, call: ast.Call) -> None:
        """One character less in each set of characters of a regular expression."""
        for node in call.args:
            if not (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))):
                continue
            begin, end = self._span(node)
            for found in re.finditer(rb"\[\^?[^\]\\]{2,}\]", self._source[begin:end]):
                at = begin + found.end() - 2
                self._add("pattern", call, at, at + 1, "", call)

    def _is_tuned(self, target: ast.expr) -> bool:
        return isinstance(target, ast.Name) and _TUNED.fullmatch(target.id) is not None


def _is_timeout(keyword: ast.keyword) -> bool:
    """Whether it is a number of seconds to wait: no test can tell it from another."""
    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    tuned = keyword.arg is not None and _TIMEOUT.fullmatch(keyword.arg) is not None
    return tuned and isinstance(value, int | float) and value > 0


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _is_logging(node: ast.Call) -> bool:
    return _called(node) in _LOGGING


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _names_types(node: ast.BinOp) -> bool:
    """Whether it is a union of types: ``int | None``."""
    if not isinstance(node.op, ast.BitOr):
        return False
    types = {"int", "str", "float", "bytes", "bool", "dict", "list", "tuple"}
    for side in (node.left, node.right):
        if isinstance(side, ast.Constant) and side.value is None:
            return True
        if isinstance(side, ast.Name) and side.id in types:
            return True
    return False


def probes(defects: Iterable[tuple[int, Defect]]) -> Iterator[tuple[int, int, int, str]]:
    """``(offset, rank, width, text)``: what to insert so that each defect's place is counted.

    ``mutant_hit(n)`` is called where the expression or statement of the n-th defect is about to be
    evaluated; no line is added.  Sorted, what is inserted nests as the expressions do.
    """
    for number, defect in defects:
        begin, end = defect.probe
        if end is None:
            yield begin, 1, -(1 << 40), f"mutant_hit({number}); "
        else:
            yield begin, 1, begin - end, f"(mutant_hit({number}) or ("
            yield end, 0, -begin, "))"
