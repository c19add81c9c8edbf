"""Statistics of repeated runs, on values whose results are known."""

from __future__ import annotations

import json

import pytest

from benchmarks.figures import Figure, Result, fit_exponent, format_number, growth, ratios


@pytest.mark.parametrize(
    ("values", "median", "spread"),
    [([3.0], 3.0, (3, 3)), ([5, 1, 3], 3.0, (1, 5)), ([4, 1, 3, 100], 3.5, (1, 100))],
)
def test_a_figure_has_a_median_and_a_spread(
    values: list[float], median: float, spread: tuple[float, float]
) -> None:
    figure = Figure("x", values)
    assert figure.median == median
    assert figure.spread == spread


@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_a_figure_without_finite_values_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"speed: no finite values"):
        Figure("speed", values)


def test_each_round_has_its_ratio() -> None:
    assert ratios([1, 2, 3], [2, 2, 2]) == [0.5, 1.0, 1.5]


def test_with_a_run_of_theirs_around_each_of_ours_their_mean_counts() -> None:
    # A machine that takes 1 s longer with every run favours neither side.
    theirs, ours = [10.0, 12.0, 14.0], [11.0, 13.0]
    assert ratios(ours, theirs) == [1.0, 1.0]
    assert ratios([5.5], [10.0, 12.0]) == [0.5]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_series_of_other_lengths_have_no_ratios(count: int) -> None:
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0, 2.0, 3.0], [1.0] * count)


@pytest.mark.parametrize(
    ("costs", "exponent"), [([5, 20, 80], 1.0), ([7, 7, 7], 0.0), ([1, 16, 256], 2.0)]
)
def test_growth_is_the_exponent(costs: list[float], exponent: float) -> None:
    assert growth([1, 4, 16], costs) == pytest.approx(exponent)


@pytest.mark.parametrize(("sizes", "costs"), [([1], [1]), ([1, 2], [0, 1]), ([0, 2], [1, 1])])
def test_growth_of_nothing_is_refused(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="no growth"):
        growth(sizes, costs)


def _series(costs: list[float], unit: str) -> list[Figure]:
    sizes = (1, 4, 16)
    return [Figure(f"{n}", [c], unit, "s", n) for n, c in zip(sizes, costs, strict=True)]


def test_the_two_largest_sizes_give_a_series_exponent() -> None:
    assert fit_exponent(_series([50, 10, 40], "MB")) == pytest.approx(1.0)
    assert fit_exponent(list(reversed(_series([50, 10, 40], "MB")))) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("costs", "unit"), [([0.0, 0.01, 0.029], "CPU s / s"), ([1, 1, 0], "MB"), ([1, 0, 9], "MB")]
)
def test_a_cost_within_the_noise_has_no_exponent(costs: list[float], unit: str) -> None:
    assert fit_exponent(_series(costs, unit)) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.12345, "0.123"), (-2.5, "-2.50"), (12.345, "12.3"), (1234.5, "1234")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_figure_shows_its_spread_and_repetitions() -> None:
    assert str(Figure("x", [0.5, 0.4, 0.6])) == "0.500 (0.400 to 0.600, 3)"
    assert str(Figure("x", [2.0], "MB")) == "2.00 MB"


def test_a_result_survives_json() -> None:
    result = Result("rig", "what it costs", "python -m benchmarks rig", {"camera": "real"})
    result.figures.append(Figure("CPU, 4 streams", [1, 2, 4], "CPU s", "CPU by streams", 4.0))
    result.skipped["screen"] = "no browser"
    again = Result.from_json(json.loads(json.dumps(result.to_json())))
    assert again == result
    assert result.to_json()["figures"][0]["median"] == 2
    assert result.to_json()["figures"][0]["spread"] == [1, 4]
