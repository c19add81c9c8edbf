"""The language of conditions: values, missing ones, what is refused and where."""

from __future__ import annotations

import math
import random
import string
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recorder.config.expressions import (
    MOST_LENGTH,
    ExpressionError,
    Reference,
    Value,
    compile_expression,
)
from tests.campaigns import seeded

A, B = Reference("s", "channel", ("a",)), Reference("s", "channel", ("b",))


def result(text: str, a: Value = None, b: Value = None) -> Value:
    slots = {A: 0, B: 1}
    return compile_expression(text, slots)([a, b])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3 - 4 / 8", 6.5),
        ("-s.a", -2.0),
        ("+s.a", 2.0),
        ("abs(-s.b)", 3.0),
        ("min(s.a, s.b, 1)", 1.0),
        ("max(s.a, s.b)", 3.0),
        ("s.a < s.b", True),
        ("s.a < s.b < 3", False),
        ("1 < s.a <= 2 < s.b", True),
        ("s.a == 2 and not s.b == 2", True),
        ("s.a > 2 or s.b >= 3", True),
        ("s.a != 2", False),
        ("True", True),
        ("not 0", True),
        ("1e300 * 1e300 > 1", True),
        ("s.a / 0", None),
    ],
)
def test_values(text: str, expected: Value) -> None:
    assert result(text, 2.0, 3.0) == expected


NAN = math.nan


@pytest.mark.parametrize(
    ("text", "a", "expected"),
    [
        ("s.a + 1", None, None),
        ("s.a > 1", None, None),
        ("not s.a", None, None),
        ("s.a and False", None, False),
        ("s.a and True", None, None),
        ("True and s.a", None, None),
        ("s.a or True", None, True),
        ("s.a or False", None, None),
        ("max(s.a, 1)", None, None),
        ("s.a > 1", NAN, False),
        ("s.a == s.a", NAN, False),
        ("s.a != s.a", NAN, True),
        ("not s.a > 1", NAN, True),
        ("s.a or True", NAN, True),
        ("s.a and True", NAN, None),
        ("1 > s.a or s.a / 0 > 1", 2.0, None),
    ],
)
def test_what_is_missing_or_nan(text: str, a: Value, expected: Value) -> None:
    assert result(text, a) is expected
    assert compile_expression(text, {A: 0, B: 1}).is_met([a, None]) is (expected is True)


def test_minimum_and_maximum_of_nan_are_nan() -> None:
    for text in ("min(s.a, 1)", "min(1, s.a)", "max(1, s.a)", "max(s.a, 1)"):
        found = result(text, NAN)
        assert isinstance(found, float) and math.isnan(found)


def test_references() -> None:
    text = "imu.acc[2] + gnss.cov[0, 1] + imu.rate > camera.state.gain.x and session.events.clock"
    assert compile_expression(text).references == (
        Reference("imu", "channel", ("acc",), (2,)),
        Reference("gnss", "channel", ("cov",), (0, 1)),
        Reference("imu", "rate"),
        Reference("camera", "state", ("gain", "x")),
        Reference("session", "events", ("clock",)),
    )
    names = [str(reference) for reference in compile_expression(text).references]
    assert names[1] == "gnss.cov[0, 1]"
    assert names[2:] == ["imu.rate", "camera.state.gain.x", "session.events.clock"]
    slots: dict[Reference, int] = {}
    first, second = compile_expression("s.a > s.b", slots), compile_expression("s.b > 1", slots)
    assert slots == {A: 0, B: 1}
    assert first([2.0, 1.0]) is True and second([2.0, 1.0]) is False


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "not part of the language"),
        ("s.a >", 6, "no expression"),
        ("s.a ** 2", 1, "only + - * /"),
        ("1 + (s.a << 2)", 6, "only + - * /"),
        ("1 > 0 and 'x'", 11, "'x' is no number"),
        ("s.a in s.b", 1, "only < <= > >= == !="),
        ("~1", 1, "~ is not"),
        ("open(1)", 1, "only abs, min, max"),
        ("s.a(1)", 1, "only abs, min, max"),
        ("abs(1, 2)", 1, "abs takes one value"),
        ("min(1)", 1, "at least two"),
        ("max(*s.a)", 1, "separated by commas"),
        ("abs(x=1)", 1, "separated by commas"),
        ("imu > 1", 1, "needs a value of it, such as imu.rate"),
        ("imu.acc.x > 1", 1, "needs .CHANNEL"),
        ("imu.rate[0] > 1", 1, "one value, without an index"),
        ("imu.acc[-1] > 1", 9, "whole numbers from 0"),
        ("imu.acc[s.a] > 1", 9, "whole numbers from 0"),
        ("imu.acc[0:1] > 1", 9, "whole numbers from 0"),
        ("imu.acc[True] > 1", 9, "whole numbers from 0"),
        ("(1).real", 1, "needs a stream's name"),
        ("1 if s.a else 2", 1, "if is not part"),
        ("[1]", 1, "a list is not part"),
        ("lambda: 1", 1, "lambda is not part"),
        ("(x := 1)", 2, ":= is not part"),
        ("  s.a ** 2", 3, "only + - * /"),
        ("1" + "0" * 400, 1, "too large"),
        ("s.a > " + "1" * 500, MOST_LENGTH + 1, "longer than"),
        ("-" * 40 + "1", 32, "nested deeper"),
        ("+".join(["1"] * 150), 1, "nested deeper"),
        (" or ".join(["s.a"] * 70), 1, ""),
        ("\0", 1, "no expression"),
    ],
)
def test_mistakes_name_their_column(text: str, column: int, message: str) -> None:
    if not message:
        compile_expression(text)
        return
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"column {caught.value.column}: ")
    if "no expression" not in message:
        assert caught.value.column == column


WORDS = [
    "s.a", "s.b[1]", "1", "0.5", "(", ")", "+", "-", "*", "/", "<", "==", "and", "or", "not",
    "abs(", "min(", ",", "[", "]", "**", "'", ".", "lambda", ":", "if", "else", "@", "%", "\n",
]  # fmt: skip
VALUES: Sequence[Value] = [0.0, -1.5, 1e300, math.inf, math.nan, True, False, None]
words = st.sampled_from(WORDS)


@given(st.one_of(st.lists(words).map(" ".join), st.text(string.printable)), st.floats() | st.none())
@example(
    "((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))", 1.0
)
@example("1" * 490, None)
def test_any_text_is_an_expression_or_a_mistake(text: str, value: Value) -> None:
    try:
        expression = compile_expression(text)
    except ExpressionError:
        return
    found = expression([value] * len(expression.references))
    assert found is None or isinstance(found, bool | float)
    assert isinstance(expression.is_met([value] * len(expression.references)), bool)


def test_an_expression_allocates_little() -> None:
    text = "(" * 25 + "9e99*9e99" + ")" * 25 + " < abs(s.a) * 1e300 * 1e300"
    expression = compile_expression(text)
    expression([1.0])
    tracemalloc.start()
    for _ in range(1000):
        expression([1.0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


@seeded(1, weight=20, least=10)
def test_ten_thousand_texts_neither_crash_nor_allocate(seed: int) -> None:
    rng = random.Random(seed)
    sound = ["abs(s.a) < 1", "s.a + s.b[1] * 2 > 0 and not s.a == 3", "min(s.a, 1, 2) != s.rate"]
    compiled = 0
    tracemalloc.start()
    for _ in range(10_000):
        words = rng.choice(sound).split() if rng.random() < 0.7 else []
        for _ in range(rng.randint(1, 6)):
            words.insert(rng.randint(0, len(words)), rng.choice(WORDS))
        text = (rng.choice([" ", ""])).join(words)
        if rng.random() < 0.1:
            text = text * rng.choice([3, 40, 400])
        try:
            expression = compile_expression(text)
        except ExpressionError:
            continue
        compiled += 1
        found = expression([rng.choice(VALUES) for _ in expression.references])
        assert found is None or isinstance(found, bool | float)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert compiled > 100
    assert peak < 5_000_000
